"""What a line states is read whoever wrote it: each class of observation in many wordings, made by a rule."""

from itertools import product
from string import Template

from gpuinstall.catalog.failures.classify import RELIABLE, classify, lookalikes
from gpuinstall.catalog.failures.observations import load_kinds, observe
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.catalog.failures.transcript import Transcript
from tests.unit.catalog.failures.test_classify import BREAKS

LINUX = "ImportError: $it: cannot open shared object file: No such file or directory"
LOADERS = (
    LINUX,
    "./server: error while loading shared libraries: $it: cannot open shared object file: No such file or directory",
    "Could not load dynamic library '$it'; dlerror: $it: cannot open shared object file: No such file or directory",
    "Could not load library $it. Error: $it: cannot open shared object file",
    "Library $it is not found or cannot be loaded",
    "OSError: $it: Kann die Shared-Object-Datei nicht öffnen: Datei oder Verzeichnis nicht gefunden",
    "ImportError: $it: 无法打开共享对象文件: 没有那个文件或目录",
    "CuPy failed to load $it: OSError: $it: cannot open shared object file",
    "Unable to dlopen $it",
    "The third-party dynamic library ($it) that Paddle depends on is not configured correctly.",
    "    $it => not found",
    "OSError: $it: no se puede abrir el archivo del objeto compartido: No existe el archivo",
    "ImportError: $it: ne peut ouvrir le fichier d'objet partagé: Aucun fichier ou dossier",
    "ImportError: $it: невозможно открыть разделяемый объектный файл: Нет такого файла",
    "ImportError: $it: 共有オブジェクトファイルを開けません: そのようなファイルはありません",
    "ImportError: $it: 공유 목적 파일을 열 수 없습니다: 그런 파일이 없습니다",
    "ImportError: $it: não foi possível abrir arquivo compartilhado: Arquivo não encontrado",
    "Error loading shared library $it: No such file or directory (needed by x.so)",
    "java.lang.UnsatisfiedLinkError: $it: cannot open shared object file",
    "Unable to load shared library '$it' or one of its dependencies",
    "RuntimeError: could not open $it",
)
DLLS = (
    "Could not locate $it. Please make sure it is in your library path!",
    'Error loading "C:\\app\\capi\\provider.dll" which depends on "$it" which is missing.',
    "FileNotFoundError: Could not find module '$it' (or one of its dependencies).",
    'LoadLibrary failed with error 126 "" when trying to load "C:\\app\\$it"',
    "The code execution cannot proceed because $it was not found.",
    "Unable to load DLL '$it': The specified module could not be found.",
    "Library $it is not found or cannot be loaded",
    'could not load library "C:\\artifacts\\bin\\$it"',
    "由于找不到 $it，无法继续执行代码。重新安装程序可能会解决此问题。",
    "由於找不到 $it，無法繼續執行程式碼。",
    "Die Ausführung des Codes kann nicht fortgesetzt werden, da $it nicht gefunden wurde.",
    "Не удается продолжить выполнение кода, поскольку система не обнаружила $it.",
    "L'exécution du code ne peut pas continuer, car $it est introuvable.",
    "La ejecución de código no puede continuar porque no se encontró $it.",
    "A execução do código não pode continuar porque $it não foi encontrado.",
    "$itが見つからないため、コードの実行を続行できません。",
    "$it을(를) 찾을 수 없어 코드 실행을 계속할 수 없습니다.",
    "Impossibile trovare $it",
    "The program can't start because $it is missing from your computer.",
    "DllNotFoundException: Unable to load DLL '$it': The specified module could not be found.",
)
SYMBOLS = (
    "ImportError: /opt/env/lib/x.so: undefined symbol: $it",
    "python: symbol lookup error: /usr/lib/x.so: undefined symbol: $it",
    "relocation error: x.so: symbol $it, version libx.so.2 not defined in file libx.so.2",
    "symbol not found in flat namespace '$it'",
    "missing symbol $it",
    "The procedure entry point $it could not be located in the dynamic link library x.dll",
)
SHELLS = (
    "bash: $it: command not found",
    "zsh: command not found: $it",
    "'$it' is not recognized as an internal or external command,",
    "'$it' 不是内部或外部命令，也不是可运行的程序",
    "bash: $it: Kommando nicht gefunden.",
    "bash: $it: orden no encontrada",
    "$it : The term '$it' is not recognized as the name of a cmdlet",
    "/bin/sh: 1: $it: not found",
    "sh: $it: Befehl nicht gefunden.",
    "bash: $it : commande introuvable",
    "bash: $it: команда не найдена",
    "bash: $it: コマンドが見つかりません",
    "-bash: $it: 未找到命令",
    "bash: $it: comando não encontrado",
    "bash: $it: polecenie nie znalezione",
    "bash: $it: 명령어를 찾을 수 없음",
    "fish: Unknown command: $it",
    "Command '$it' not found, but can be installed with:",
    "'$it' n’est pas reconnu en tant que commande interne",
    '"$it" не является внутренней или внешней командой',
)
PROGRAMS = (
    "unable to execute '$it': No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/bin/$it'",
    "error: $it: executable file not found in $$PATH",
    "RuntimeError: could not find $it",
)
MODULES = (
    "ModuleNotFoundError: No module named '$it'",
    "ImportError: No module named $it",
    'No module named "$it"',
)
RESOLVERS = (
    "ERROR: Could not find a version that satisfies the requirement $it==2.1.0 (from versions: none)",
    "ERROR: No matching distribution found for $it",
    "Because there is no version of $it==2.1.0 and you require it",
    "Because $it was not found in the package registry",
    "No candidate is found for `$it` that matches the environment",
    "Because app depends on $it (2.1.0) which doesn't match any versions, version solving failed.",
    "DEBUG No compatible version found for: $it",
)
CUDA = (
    "CUDA error $it on start",
    "cuInit(0) returned $it",
    "CudaAPIError: [$it] Call to cuInit results in UNKNOWN_CUDA_ERROR",
    "cudaGetDeviceCount returned $it",
    "CUDA failure $it: see the log ; GPU=0 ; hostname=x ; expr=cudaSetDevice",
    "ggml_cuda_init: failed to initialize CUDA: error $it",
)
WINDOWS = (
    "OSError: [WinError $it] x",
    "Error code: $it",
    "LoadLibrary failed with error $it",
    "x (os error $it)",
)
BUILDS = (
    "RuntimeError: $it was not compiled with CUDA support",
    "XGBoostError: $it version not compiled with GPU support.",
    "ValueError: This $it package was not compiled with CUDA support",
    "ImportError: $it was built without GPU support",
    "warning: $it is compiled without CUDA.",
    "Error: $it wasn't built with ROCm support",
    "this version of $it was not built with CUDA",
    "error: $it executable has not been compiled with GPU support",
)
ARCHITECTURES = (
    "nvcc fatal   : Unsupported gpu architecture '$it'",
    "nvcc fatal   : Value '$it' is not defined for option 'gpu-architecture'",
    "error: unsupported CUDA gpu architecture: $it",
    "clang: error: unsupported CUDA gpu architecture: $it",
)
POWERSHELL = (
    "$it=0 : The term '$it=0' is not recognized as the name of a cmdlet, function, script file",
    "    + CategoryInfo          : ObjectNotFound: ($it=1:String) [], CommandNotFoundException",
    "$it=0 : 无法将“$it=0”项识别为 cmdlet、函数、脚本文件或可运行程序的名称。",
    "'$it' n’est pas reconnu en tant que commande interne",
    '"$it" не является внутренней или внешней командой',
    'Der Befehl "$it" ist entweder falsch geschrieben oder konnte nicht gefunden werden.',
)
NODES = (
    "libsycl.so.8: version `$it' not found (required by libx.so)",
    "ImportError: /lib/x.so: version '$it' not found (required by /opt/y.so)",
)

#: Class of observation, the wordings that state it, and what they may be about.
FAMILIES = {
    "missing library cuda/cudnn": ((*LOADERS,), ("libcudnn.so.9", "libcudnn_ops_infer.so.8")),
    "missing library cuda/math": ((*LOADERS,), ("libcublasLt.so.12", "libcudart.so.11.0")),
    "missing library driver/cuda": ((*LOADERS,), ("libcuda.so.1", "libcuda.so")),
    "missing library tensorrt": ((*LOADERS,), ("libnvinfer.so.8", "libnvinfer_plugin.so.10")),
    "missing library python": ((*LOADERS,), ("libpython3.10.so.1.0", "libpython3.7m.so.1.0")),
    "missing library torch": ((*LOADERS,), ("libc10.so", "libtorch_cpu.so")),
    "missing symbol cuda/nccl": (SYMBOLS, ("ncclCommRegister", "ncclMemFree")),
    "missing symbol cuda/cublas": (SYMBOLS, ("cublasLtGetStatusString", "cublasSetWorkspace_v2")),
    "missing symbol torch": (
        SYMBOLS,
        ("_ZN3c104cuda9SetDeviceEi", "_ZN2at4_ops4view4callERKNS_6TensorE"),
    ),
    "missing symbol driver": (SYMBOLS, ("cuTensorMapEncodeTiled", "cuMemGetHandleForAddressRange")),
    "missing command nvcc": (SHELLS, ("nvcc",)),
    "missing command nvidia-smi": (SHELLS, ("nvidia-smi",)),
    "missing tool nvcc": (PROGRAMS, ("nvcc",)),
    "missing module torch": (MODULES, ("torch",)),
    "missing module triton": (MODULES, ("triton", "triton.language")),
    "no version torch": (RESOLVERS, ("torch", "torchvision")),
    "no version nvidia": (RESOLVERS, ("nvidia-cudnn-cu12",)),
    "cuda 35": (CUDA, ("35",)),
    "cuda 802": (CUDA, ("802",)),
    "cuda 804": (CUDA, ("804",)),
    "cuda 999": (CUDA, ("999",)),
    "winerror 126": (WINDOWS, ("126",)),
    "winerror 193": (WINDOWS, ("193",)),
    "cpu build torch": (BUILDS, ("torch", "PyTorch")),
    "cpu build xgboost": (BUILDS, ("xgboost",)),
    "cpu build bitsandbytes": (BUILDS, ("bitsandbytes",)),
    "unknown architecture compute_89": (ARCHITECTURES, ("compute_89",)),
    "unknown architecture sm_120": (ARCHITECTURES, ("sm_120",)),
    "missing command assignment": (
        (*SHELLS, *POWERSHELL),
        ("CUDA_VISIBLE_DEVICES", "CMAKE_ARGS", "FORCE_CUDA"),
    ),
    "missing version oneapi": (NODES, ("LIBUR_LOADER_0.11", "ZE_LOADER_1.9")),
    "missing symbol oneapi": (
        SYMBOLS,
        ("_ZN4sycl3_V17handler", "urBindlessImagesImportExternalMemoryExp"),
    ),
}
DLL_FAMILIES = {
    "missing library cuda/cudnn": ("cudnn64_9.dll", "cudnn_ops_infer64_8.dll"),
    "missing library cuda/math": ("cublas64_12.dll", "nvrtc64_120_0.dll"),
    "missing library driver/cuda": ("nvcuda.dll",),
}
#: Signals and refusals have no names to put in: their sentences in the languages of the systems.
SENTENCES = {
    "signal ill": (
        "Illegal hardware instruction",
        "Instruction illégale",
        "Instrução ilegal",
        "Ungültiger Maschinenbefehl",
        "недопустимая инструкция",
        "不正な命令です",
        "잘못된 명령어",
        "exited with code 132",
        "Process finished with exit code -1073741795 (0xC000001D)",
        "Illegal instruction (core dumped)",
        "Instrucción ilegal",
        "非法指令",
        "died with <Signals.SIGILL: 4>",
    ),
    "refused disk": (
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
        "No queda espacio en el dispositivo",
        "Aucun espace disponible sur le périphérique",
        "На устройстве не осталось свободного места",
        "デバイスに空き領域がありません",
        "[WinError 112] There is not enough space on the disk",
        "磁盘空间不足。",
        "[Errno 28] No space left on device",
        "(os error 28)",
        "设备上没有空间",
        "Disk quota exceeded",
    ),
    "refused proxy": (
        "ProxyError('Unable to connect to proxy')",
        "Missing dependencies for SOCKS support.",
        "Proxy URL had no scheme, should start with http:// or https://",
        "Could not determine proxy",
        "Cannot connect to proxy.",
        "Tunnel connection failed: 407 Proxy Authentication Required",
    ),
    "refused certificate": (
        "SSL certificate problem: self-signed certificate in certificate chain",
        "unable to get local issuer certificate",
        "x509: certificate signed by unknown authority",
        "There was a problem confirming the ssl certificate",
        "CERTIFICATE_VERIFY_FAILED",
        "invalid peer certificate: UnknownIssuer",
    ),
    "winerror 127": (
        "Die angegebene Prozedur wurde nicht gefunden",
        "La procédure spécifiée est introuvable",
        "No se encontró el proceso especificado",
        "指定されたプロシージャが見つかりません",
        "지정된 프로시저를 찾을 수 없습니다",
        "Process finished with exit code -1073741511 (0xC0000139)",
        "The specified procedure could not be found",
        "找不到指定的程序",
        "Не найдена указанная процедура",
    ),
    "winerror 1114": (
        "Eine DLL-Initialisierungsroutine ist fehlgeschlagen",
        "DLL 初期化ルーチンの実行に失敗しました",
        "DLL 초기화 루틴을 실행할 수 없습니다",
        "Process exited with code 0xC0000142",
        "A dynamic link library (DLL) initialization routine failed",
        "动态链接库(DLL)初始化例程失败",
    ),
    "winerror 1455": (
        "Die Auslagerungsdatei ist zu klein, um diesen Vorgang durchzuführen",
        "El archivo de paginación es demasiado pequeño",
        "Le fichier de pagination est insuffisant",
        "Файл подкачки слишком мал",
        "ページング ファイルが小さすぎるため",
        "페이징 파일이 너무 작습니다",
        "The paging file is too small for this operation",
        "页面文件太小，无法完成操作",
    ),
    "no driver": (
        "Found no NVIDIA driver on your system",
        "NVIDIA driver is not installed",
        "no CUDA driver found",
        "CUDA driver is not installed or is not loaded",
        "could not find an appropriate CUDA driver",
        "未检测到 NVIDIA 驱动",
        "Kein NVIDIA-Treiber gefunden",
        "No se encontró el controlador NVIDIA",
        "Драйвер NVIDIA не найден",
        "NVIDIAドライバーが見つかりません",
        "NVIDIA 드라이버를 찾을 수 없습니다",
        "impossible de trouver le pilote NVIDIA",
        "não foi possível encontrar o driver NVIDIA",
    ),
    "driver old": (
        "your NVIDIA drivers are too old",
        "CUDA driver version is insufficient",
        "驱动程序版本过低",
        "Der NVIDIA-Treiber ist zu alt für diese CUDA-Version",
        "Версия драйвера NVIDIA устарела",
        "NVIDIAドライバーのバージョンが古すぎます",
        "NVIDIA 드라이버 버전이 너무 낮습니다",
        "El controlador de NVIDIA es demasiado antiguo",
        "An NVIDIA driver of version 525 is required, but 470.223.02 is installed",
        "Your current driver version (472.12) doesn't support CUDA 11.7",
        "The installed NVIDIA driver (450.119) does not meet the minimum requirement",
        "old CUDA driver detected - please upgrade to a newer driver",
        "A CUDA driver supporting at least CUDA 12.0 is required",
    ),
    "nvidia module not loaded": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "`nvidia-smi` cannot communicate with drivers",
        "kernel driver does not appear to be running on this host",
        "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.5.0-28-generic",
        "modprobe: ERROR: could not insert 'nvidia': Exec format error",
        "insmod: ERROR: could not insert module nvidia.ko: Unknown symbol in module",
        "modinfo: ERROR: Module nvidia not found.",
        "NVIDIA kernel driver not loaded",
        "/proc/driver/nvidia/version: No such file or directory",
        "nvidia: disagrees about version of symbol module_layout",
        "nvidia: version magic '5.15.0-86-generic' should be '5.15.0-88-generic'",
        "nvidia-modprobe: Failed to load the NVIDIA kernel module",
        "NVIDIA-SMI no pudo comunicarse con el controlador NVIDIA",
        "NVIDIA-SMI не может связаться с драйвером NVIDIA",
        "nvidia-smi 无法与 NVIDIA 驱动通信",
    ),
    "nvidia module not built": (
        "Error! nvidia/550.120 failed to build",
        "==> ERROR: Missing 6.6.1-arch1-1 kernel headers for module nvidia/545.29.02.",
        "akmods: Building and installing nvidia-kmod [FAILED]",
        "dpkg: error processing package nvidia-dkms-535 (--configure):",
        "/var/lib/dkms/nvidia/470.129/build/nvidia/nv-acpi.c:84:19: error: too many arguments",
        "/usr/src/nvidia-390.147/nvidia/nv.c:1234: error: implicit declaration of function",
        "FATAL: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol",
        "dkms: running auto installation service: nvidia (535.54): Building... failed",
        'ERROR: An error occurred while performing the step: "Building kernel modules".',
        "Unable to find the kernel source tree for the currently running kernel",
    ),
    "nvidia module rejected": (
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "modprobe: ERROR: could not insert 'nvidia': Required key not available",
        "Loading of module with unavailable key is rejected",
        "Secure Boot prevents the NVIDIA module",
        "it was not signed by a key that is trusted by the kernel",
    ),
    "mps unsupported": (
        "The operator 'aten::x' is not currently implemented for the MPS device",
        "MPS does not support cumsum op with int64 input",
        "Cannot convert a MPS Tensor to float64 dtype",
        "BFloat16 is not supported on MPS",
        "MPS backend does not support float64",
        "complex64 tensors are unsupported by Metal Performance Shaders (mps)",
        "The dtype float64 is unavailable on mps",
        "RuntimeError: MPS: Unsupported Border padding mode",
    ),
    "hip 100": (
        "RuntimeError: No HIP GPUs are available",
        'HIP API error = 0100 "no ROCm-capable device is detected"',
        "hipErrorNoDevice",
        "rocminfo: hsa_init failed",
    ),
    "toolkit check": (
        "in assert_no_cuda_mismatch",
        "in _join_cuda_home",
        "op_builder.builder.MissingCUDAException",
        'subprocess.check_output([cuda_dir + "/bin/nvcc", "-V"])',
    ),
    "winerror 126": (
        "The specified module could not be found",
        "Process finished with exit code -1073741515 (0xC0000135)",
        "Das angegebene Modul wurde nicht gefunden",
        "Belirtilen modül bulunamadı.",
        "지정된 모듈을 찾을 수 없습니다.",
        "指定されたモジュールが見つかりません。",
        "Не найден указанный модуль.",
        "(0x8007007E)",
    ),
    "cuda 46": ("CUDA-capable device(s) is/are busy or unavailable", "cudaErrorDevicesUnavailable"),
    "cuda 209": (
        "CUDA error: device kernel image is invalid",
        "DriverError(CUDA_ERROR_NO_BINARY_FOR_GPU)",
        "Check failed: error == cudaSuccess (48 vs. 0)",
        "CUDA failure 209: x ; GPU=0",
        "Cuda error(209)",
        "no kernel image is available for execution on the device",
        "cudaErrorNoKernelImageForDevice",
    ),
    "cpu build": (
        "RuntimeError: Not compiled with GPU support",
        "error: Compiled without CUDA. Aborting.",
        "Device API cuda is not enabled. Please install the cuda version of dgl.",
        "CUDA Tree Learner was not enabled in this build.",
        "is_built_with_cuda() returns False",
        "UserWarning: Failed to load custom C++ ops. Running on CPU mode Only!",
    ),
    "no gpu": (
        "RuntimeError: No CUDA GPUs are available",
        "no compatible GPUs were discovered",
        "Num GPUs Available:  0",
        "tf.config.list_physical_devices('GPU') []",
        "torch.cuda.is_available() False",
        "SystemError: GPU device not found",
        "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
        "No GPU/TPU found, falling back to CPU.",
        "NotImplementedError: Unsloth: No NVIDIA GPU found? Unsloth currently only supports GPUs!",
    ),
    "hang collective": (
        "it hangs forever at init_process_group",
        "NCCL gets stuck on two cards",
        "all_reduce freezes",
        "多卡训练卡住不动",
        "torchrun deadlocks after the first step",
    ),
    "cublas failed": (
        "cublas runtime error : the GPU program failed to execute at THCBlas.cu:411",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(`",
        "InternalError: Blas GEMM launch failed : a.shape=(32, 784)",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ),
    "nvml unknown": (
        "Failed to initialize NVML: Unknown Error",
        "Failed to initialize NVML: Unknow Error",
        "Failed to initialize NVML: Unkown Error",
        "pynvml.nvml.NVMLError_Unknown: Unknown Error",
        "NVML: Unknown Error",
        "NVML initialization failed: Unknown error",
    ),
    "cuda 304": ("cuInit(0) returned 304", "CUDA_ERROR_OPERATING_SYSTEM", "CUDA error: 304"),
    "unknown architecture sm_120a": (
        "ptxas fatal   : Unsupported .target 'sm_120a'",
        "ptxas kernel.ptx, line 9; fatal   : Unsupported .target 'sm_120a'",
    ),
    "no wheel uvloop": (
        (
            "error: Distribution `uvloop==0.21.0 @ registry+https://index.example/simple` can't be "
            "installed because it doesn't have a source distribution or wheel for the current platform"
        ),
    ),
    "missing module vllm part": (
        "ModuleNotFoundError: No module named 'vllm._C'",
        "ImportError: No module named vllm._moe_C",
    ),
    "nvml mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch",
        "nvml error: driver/library version mismatch: unknown",
        "NVML error: 18",
        "failed to initialize NVML: ERROR_LIB_RM_VERSION_MISMATCH",
        "NVMLError_LibRmVersionMismatch",
        "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    ),
}


#: A memory that is full, as each program says it.
MEMORY = (
    (
        "ResourceExhaustedError: OOM when allocating tensor with shape[32,64,512,512] "
        "and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator "
        "GPU_0_bfc"
    ),
    (
        "W tensorflow/core/common_runtime/bfc_allocator.cc:462] Allocator (GPU_0_bfc) "
        "ran out of memory trying to allocate 2.20GiB (rounded to 2362232064)requested "
        "by op"
    ),
    (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
        "trying to allocate 17179869184 bytes."
    ),
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 1.50GiB "
        "(1610612736B) on device ordinal 0"
    ),
    (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes "
        "(allocated so far: 3,221,225,472 bytes)."
    ),
    (
        "Out of memory error on GPU 0. Cannot allocate 2.250000GB memory on GPU 0, "
        "10.6GB memory has been allocated and available memory is only 300.0MB."
    ),
    (
        "mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:157: cudaMalloc "
        "failed: out of memory"
    ),
    (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: "
        "cudaMalloc failed: out of memory\nllama_model_load: error loading model: unable "
        "to allocate CUDA0 buffer"
    ),
    "CUDA error 2 at ggml-cuda.cu:7865: out of memory",
    "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1073741824",
    (
        "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: "
        "OutOfMemory (no further information)"
    ),
    (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.83 GB, other "
        "allocations: 384.00 KB, max allowed: 18.13 GB)."
    ),
    "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.00 GiB.",
    (
        "RuntimeError: Native API failed. Native API returns: -5 "
        "(PI_ERROR_OUT_OF_RESOURCES) -5 (PI_ERROR_OUT_OF_RESOURCES)"
    ),
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    (
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine."
    ),
    (
        "ValueError: The model's max seq len (32768) is larger than the maximum number "
        "of tokens that can be stored in KV cache (8304). Try increasing "
        "`gpu_memory_utilization`"
    ),
    (
        "ValueError: Free memory on device (10.2/23.6 GiB) on startup is less than "
        "desired GPU memory utilization (0.9, 21.2 GiB)."
    ),
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    (
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
        "CUDA_ERROR_OUT_OF_MEMORY"
    ),
    "RuntimeError: parallel_for failed: cudaErrorMemoryAllocation: out of memory",
    (
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
        "rmm/mr/device/cuda_memory_resource.hpp:69: cudaErrorMemoryAllocation out of "
        "memory"
    ),
    "DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.",
    (
        "Could not allocate tensor with 268435456 bytes. There is not enough GPU video "
        "memory available!"
    ),
    (
        "E_OUTOFMEMORY 8007000E Not enough memory resources are available to complete "
        "this operation."
    ),
    "ErrorOutOfDeviceMemory: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    "RuntimeError: vk::OutOfDeviceMemoryError",
    (
        "W external/local_xla/xla/tsl/framework/bfc_allocator.cc:482] Allocator "
        "(GPU_0_bfc) ran out of memory"
    ),
    (
        "Failed to allocate 1.2G (1288490240 bytes) from device: "
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    ),
    "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "显存不足: CUDA out of memory",
)


def families():
    """Yield each class with each of its wordings."""
    for name, (wordings, values) in FAMILIES.items():
        for wording, value in product(wordings, values):
            yield name, Template(wording).substitute(it=value)
    for name, values in DLL_FAMILIES.items():
        for wording, value in product(DLLS, values):
            yield name, Template(wording).substitute(it=value)
    for name, sentences in SENTENCES.items():
        for sentence in sentences:
            yield name, sentence


def names_in(text):
    """The names of what a text states."""
    return {observation.name for observation in observe(Transcript(text))}


def test_no_wording_of_a_family_is_lost():
    lost = [(name, text) for name, text in families() if name not in names_in(text)]

    assert lost == []


DRESSES = (
    "from Windows",
    "indented",
    "in a compose log",
    "coloured",
    "quoted",
    "with times",
    "in a system log",
    "as one string of JSON",
)


def test_no_wording_is_lost_however_its_line_is_broken():
    # The libraries have more than twenty wordings each as they are.
    texts = [(name, text) for name, text in families() if not name.startswith("missing library")]
    broken = [
        (name, BREAKS[dress](f"before\n{text}\nafter"))
        for (name, text), dress in product(texts, DRESSES)
    ]

    assert [(name, text) for name, text in broken if name not in names_in(text)] == []


def test_a_full_memory_is_one_whoever_says_it():
    others = [
        text
        for text in MEMORY
        if "out-of-memory" not in {other.id for other, _ in lookalikes(text)}
    ]

    assert others == []


XFORMERS = (
    "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
    "    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.2.0+$kind)"
)
#: What people write below that warning: it is no fault where it stands.
HARMLESS = (
    "This is only a warning.",
    "It is just a warning and can be ignored.",
    "You may safely ignore it.",
    "It does not affect the training.",
    "It is harmless here.",
    "这只是警告，不影响训练。",
    "この警告は無視して構いません。",
    "이 경고는 무시해도 됩니다.",
    "Die Warnung ist harmlos.",
    "Se puede ignorar.",
    "Это можно игнорировать.",
)
#: What shows that the CPU is meant.
ON_THE_CPU = (
    "from optimum.intel import OVStableDiffusionPipeline",
    "python convert.py --device cpu",
    "pip install torch --index-url https://index.example/whl/cpu",
    "import openvino",
    "training_args = TrainingArguments(use_cpu=True)",
)


def test_xformers_warning_is_a_fault_unless_the_text_says_otherwise():
    other_torch = Template(XFORMERS).substitute(kind="cu124")
    on_the_cpu = Template(XFORMERS).substitute(kind="cpu")
    accused = [
        *(line for line in HARMLESS if classify(f"{other_torch}\n{line}")),
        *(line for line in ON_THE_CPU if classify(f"{line}\n{on_the_cpu}")),
    ]

    assert classify(other_torch)[0].id == "F56"
    assert classify(on_the_cpu)[0].id == "F33"
    assert accused == []


def test_the_list_of_a_build_tells_whether_its_warning_about_gb10_is_true():
    older = (
        "NVIDIA GB10 with CUDA capability sm_121 is not compatible with the current PyTorch "
        "installation. The current PyTorch install supports CUDA capabilities $list."
    )
    newer = (
        "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda "
        "capability supported by this version of PyTorch is ($list)"
    )
    cases = (
        (older, "sm_80 sm_90 sm_90a", "F38"),
        (older, "sm_80 sm_90 sm_100 sm_120 compute_120", "F30"),
        (newer, "8.0) - (9.0", "F38"),
        (newer, "8.0) - (12.0", "F30"),
    )
    found = [
        classify(Template(message).substitute(list=builds))[0].id for message, builds, _ in cases
    ]

    assert found == [right for _, _, right in cases]


def test_another_makers_gpu_is_not_looked_for_in_nvidias_container():
    makers = (
        "ggml_cuda_init: failed to initialize MUSA: unsupported display driver / musa driver",
        "Default Runtime: mthreads",
        "摩尔线程 S80",
        "import torch_npu",
        "$ cnmon",
    )
    text = "docker run image\nNo CUDA GPUs are available\n"

    assert classify(text)[0].id == "F25"
    assert [
        maker
        for maker in makers
        if any(cause.id == "F25" for cause in classify(f"{maker}\n{text}"))
    ] == []


def test_what_only_a_place_suggests_is_a_possibility():
    texts = (
        "Failed to initialize NVML: Unknown Error",
        "it works on the host\ndocker: No CUDA GPUs are available",
    )

    assert [text for text in texts if classify(text)[0].confidence >= RELIABLE] == []


def test_torchs_warning_about_numpy_is_none_of_a_build():
    warning = (
        "UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally)"
    )

    assert classify(f"pip-build-env-x/overlay/torch/nn/modules.py:20: {warning}") == ()


def test_a_line_that_states_nothing_is_no_observation():
    texts = (
        "libcudart.so.12 => /opt/env/lib/libcudart.so.12",
        "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "torch 2.9.1+cu130, CUDA 13.0, cuDNN 9.13",
        "epoch 3 loss 0.35 (error 0.02) 999 of 1000",
    )
    named = {text: names_in(text) - {"missing library plugin"} for text in texts}

    assert {text: names for text, names in named.items() if names} == {}


def test_every_sign_sees_what_can_be_observed():
    names = {f"{kind.name} {family}" for kind in load_kinds() for family in kind.families}
    names |= {kind.name for kind in load_kinds()}
    # What no family covers is named by itself: a code, a signal.
    names |= {"winerror 5", "winerror 32", "winerror 206", "no wheel torch"}
    names |= {
        "cpu build xgboost",
        "unknown architecture sm_120",
        "no version transformers",
        "no file ray",
    }
    signs = [
        (failure.id, sign.sees)
        for failure in load_failures().values()
        for sign in failure.signs
        if sign.sees
    ]

    assert [
        (entry, sees.pattern) for entry, sees in signs if not any(map(sees.fullmatch, names))
    ] == []
