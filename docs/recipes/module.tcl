#%Module
# /shared/modulefiles/torch/1, for Environment Modules (Lmod reads it too). The module's python (recipes/module-python)
# selects the environment when it starts, so a module that was loaded on a login node also works in a job.
set folder /shared/project

module-whatis "PyTorch for the GPUs of the node"
conflict torch
prepend-path PATH $folder/bin
