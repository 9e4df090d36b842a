"""ResNet-50 (He and others, 2015), for measuring a training step: nothing is downloaded and nothing is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


def resnet50(torch: Any) -> Any:
    """Make the network, for 1000 classes."""
    nn = torch.nn
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks, width_in = [], 64
    for stage, (width, count) in enumerate(STAGES):
        for place in range(count):
            stride = 2 if stage > 0 and place == 0 else 1
            blocks.append(_bottleneck(nn, width_in, width, stride))
            width_in = width * EXPANSION
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, 1000))
    return nn.Sequential(*stem, *blocks, *head)


def _bottleneck(nn: Any, width_in: int, width: int, stride: int) -> Any:
    class Bottleneck(nn.Module):  # type: ignore[misc]
        """Three convolutions and the way around them."""

        def __init__(self) -> None:
            super().__init__()
            self.way = nn.Sequential(
                *_convolution(nn, width_in, width, 1, 1),
                nn.ReLU(),
                *_convolution(nn, width, width, 3, stride),
                nn.ReLU(),
                *_convolution(nn, width, width * EXPANSION, 1, 1),
            )
            same = stride == 1 and width_in == width * EXPANSION
            around = nn.Sequential(*_convolution(nn, width_in, width * EXPANSION, 1, stride))
            self.around = nn.Identity() if same else around
            self.end = nn.ReLU()

        def forward(self, x: Any) -> Any:
            """Add both ways."""
            return self.end(self.way(x) + self.around(x))

    return Bottleneck()


def _convolution(nn: Any, width_in: int, width: int, size: int, stride: int) -> tuple[Any, Any]:
    return nn.Conv2d(width_in, width, size, stride, size // 2, bias=False), nn.BatchNorm2d(width)
