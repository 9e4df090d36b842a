"""The programs beside a real torch on the CPU: packages that compute rightly and wrongly, and those of the index."""

import shutil

import pytest
import uv

from gpuinstall.base import process
from gpuinstall.base.machine import Machine
from gpuinstall.verify.kernel_run import KERNELS
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import copied, cpu_torch, small_package

HERE = Machine("linux", "x86_64")
ALL_BOXES = "import torch\nclass ops:\n    nms = staticmethod(lambda boxes, scores, most: torch.arange(len(boxes)))\n"
SHIFTED = """
class functional:
    quantize_blockwise = staticmethod(lambda x: (x, 0.1 * x.abs().max()))
    dequantize_blockwise = staticmethod(lambda x, shift: x + shift)
"""
FILTER = """
import torch

def lfilter(wave, a, b, clamp):
    found = []
    for i in range(len(wave)):
        now = sum(b[k] * wave[i - k] for k in range(3) if k <= i)
        found.append(now - sum(a[k] * found[i - k] for k in (1, 2) if k <= i))
    return torch.stack(found)
"""
PROVE = """
import sys
import torch
sys.path[:0] = sys.argv[1:]
from kernels.context import CheckContext
from kernels.programs import program_check

for module in ("torchvision", "torchaudio", "bitsandbytes"):
    check = program_check(module, "cpu")
    try:
        check.run(CheckContext(torch, "cpu", check.limit or 0.0))
        print("passed")
    except Exception as error:
        print(repr(error))
"""
ON_THE_CPU = """
class SessionOptions:
    def add_session_config_entry(self, *entry):
        pass

class InferenceSession:
    def __init__(self, *model, providers):
        pass

    def get_providers(self):
        return ["CPUExecutionProvider"]
"""
ON_A_GPU = """
import sys
import torch
folder, site, *modules = sys.argv[1:]
sys.path[:0] = folder, site
from kernels.context import CheckContext
from kernels.programs import program_check

for module in modules:
    check = program_check(module, "cuda")
    try:
        check.run(CheckContext(torch, "cuda", check.limit or 0.0))
        print("passed")
    except Exception as error:
        print(repr(error))
"""
COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from kernels.triton_kernel import kernel

source = ASTSource(fn=kernel, signature={"numbers": "*fp32", "results": "*fp32"}, constexprs={})
print(len(compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]))
"""
WHISPER = """
import math
import sys
import wave
from array import array
from pathlib import Path

import numpy
import torch
from ctranslate2.converters import TransformersConverter
from faster_whisper import WhisperModel
from faster_whisper.audio import decode_audio
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperForConditionalGeneration

folder = Path(sys.argv[1])
names = ["endoftext", "startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev", "nospeech"]
marks = [f"<|{name}|>" for name in (*names, "notimestamps", *(f"{number * 0.02:.2f}" for number in range(1501)))]
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.add_special_tokens(marks)
end, start, english = map(tokenizer.token_to_id, marks[:3])
torch.manual_seed(0)
size = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": tokenizer.get_vocab_size()}
ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
model = WhisperForConditionalGeneration(WhisperConfig(**size, **heads, **ends)).eval()
generation = model.generation_config
generation.suppress_tokens, generation.begin_suppress_tokens, generation.alignment_heads = [], [], [[0, 0]]
generation.lang_to_id = {"<|en|>": english}
generation.no_timestamps_token_id = tokenizer.token_to_id("<|notimestamps|>")
model.save_pretrained(folder / "torch")
special = {"eos_token": marks[0], "bos_token": marks[0], "unk_token": marks[0]}
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder / "torch")
converter = TransformersConverter(str(folder / "torch"), copy_files=["tokenizer.json"])
whisper = WhisperModel(converter.convert(str(folder / "converted")), device="cpu", compute_type="float32")
tone = array("h", (int(9000 * math.sin(at / 16000 * 2 * math.pi * 440)) for at in range(32000)))
with wave.open(str(folder / "tone.wav"), "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(16000)
    file.writeframes(tone.tobytes())
options = {"no_speech_threshold": None, "log_prob_threshold": None, "max_new_tokens": 8}
segments, info = whisper.transcribe(str(folder / "tone.wav"), language="en", beam_size=1, temperature=0.0, **options)
list(segments)
features = whisper.feature_extractor(decode_audio(str(folder / "tone.wav")))
features = numpy.pad(features, ((0, 0), (0, 3000 - features.shape[1]))).astype("float32")
result = torch.tensor(numpy.asarray(whisper.encode(features)))
with torch.no_grad():
    exact = model.double().model.encoder(torch.tensor(features)[None].double()).last_hidden_state
print(info.duration, float((result.double() - exact).abs().max() / exact.abs().max()))
"""


@pytest.fixture(scope="session")
def torch(tmp_path_factory, request):
    return cpu_torch(tmp_path_factory, offline="not network" in request.config.getoption("-m"))


@pytest.fixture
def environment(torch, tmp_path):
    return copied(torch, tmp_path / "env")


def checks(environment):
    (device,) = verify_environment(environment / "bin" / "python", HERE).devices
    return {check.name: check for check in device.checks}


@pytest.mark.heavy
def test_a_right_answer_passes_and_a_wrong_one_is_found_out(torch, tmp_path):
    small_package(tmp_path, "torchvision", ALL_BOXES)
    small_package(tmp_path, "bitsandbytes", SHIFTED)
    small_package(tmp_path, "torchaudio")
    (tmp_path / "torchaudio" / "functional.py").write_text(FILTER)
    done = process.run(
        [torch / "bin" / "python", "-c", PROVE, KERNELS.parent, tmp_path], seconds=120
    )
    assert done.out.splitlines() == [
        "Wrong('the result is not exactly the expected one')",
        "passed",
        "Wrong('the result is off by 0.1, where 0.016 is allowed')",
    ], done.err


@pytest.mark.heavy
def test_a_library_that_would_serve_from_the_cpu_in_place_of_the_gpu_fails(torch, tmp_path):
    small_package(tmp_path, "onnxruntime", ON_THE_CPU)
    small_package(
        tmp_path,
        "tensorflow",
        "class config:\n    list_physical_devices = staticmethod(lambda kind: [])",
    )
    small_package(tmp_path, "ctranslate2", "get_cuda_device_count = int")
    small_package(tmp_path, "faiss", "get_num_gpus = int")
    modules = ("onnxruntime", "tensorflow", "ctranslate2", "faiss")
    done = process.run(
        [torch / "bin" / "python", "-c", ON_A_GPU, KERNELS.parent, tmp_path, *modules], seconds=120
    )
    assert [line.partition("(")[0] for line in done.out.splitlines()] == ["Wrong"] * 4, done.err


@pytest.mark.network
@pytest.mark.heavy
def test_libraries_of_the_index_compute_rightly_on_the_cpu(environment):
    names = (
        "onnxruntime-gpu",
        "ctranslate2",
        "bitsandbytes",
        "numpy",
        "pyyaml",
        "flatbuffers",
        "protobuf",
        "sympy",
    )
    install(environment, *names)
    found = checks(environment)
    passed = {name for name, check in found.items() if check.status == "passed"}
    assert {"onnxruntime-product", "ctranslate2-import", "bitsandbytes-quantize"} <= passed, found


@pytest.mark.network
@pytest.mark.heavy
def test_faster_whisper_hears_a_file_on_the_cpu_as_the_model_that_it_was_converted_from(
    environment, tmp_path
):
    words = [
        "--python",
        str(environment / "bin" / "python"),
        "faster-whisper",
        "transformers",
        "torch==2.13.0",
    ]
    done = process.run([uv.find_uv_bin(), "pip", "install", "-q", *words], seconds=600)
    assert done.ok, done.err
    done = process.run([environment / "bin" / "python", "-c", WHISPER, tmp_path], seconds=300)
    assert done.ok, done.err
    length, error = map(float, done.out.split())
    assert length == 2.0
    assert error < 1e-5


@pytest.mark.network
@pytest.mark.heavy
def test_what_the_index_has_is_proven_where_it_runs_on_the_cpu_and_found_out_where_it_was_built_for_gpus(
    environment,
):
    install(
        environment,
        "bitsandbytes",
        "torchao",
        "triton",
        "torchvision",
        "torchaudio",
        "torchcodec",
        "numpy",
    )
    found = checks(environment)
    passed = {name for name, check in found.items() if check.status == "passed"}
    assert {"bitsandbytes-quantize", "torchao-import", "triton-import"} <= passed
    assert {name: check.id for name, check in found.items() if check.status == "failed"} == {
        "torchvision-nms": "F47",
        "torchaudio-filter": "F48",
        "torchcodec-import": "F56",
    }


@pytest.mark.network
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) for Triton")
def test_the_kernel_in_tritons_language_compiles_for_a_gpu_that_is_not_here(
    environment,
):
    install(environment, "triton")
    program = f"import sys; sys.path.insert(0, {str(KERNELS.parent)!r})\n{COMPILE}"
    done = process.run([environment / "bin" / "python", "-c", program], seconds=120)
    assert done.ok, done.err
    assert int(done.out) > 0


def install(environment, *names):
    """Install packages beside the torch that is there, without what they demand of another."""
    into = ["--no-deps", "--python", str(environment / "bin" / "python")]
    done = process.run(
        [uv.find_uv_bin(), "pip", "install", "-q", *into, *names, "pillow", "packaging"],
        seconds=600,
    )
    assert done.ok, done.err
