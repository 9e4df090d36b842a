#%Module
# /shared/modulefiles/torch/1, for Environment Modules (Lmod reads it too). Its python, of recipes/module-python, chooses
# on each node when it is started, so that a module that was loaded on a login node is right in a job too.
set folder /shared/project

module-whatis "PyTorch for the GPUs of the node"
conflict torch
prepend-path PATH $folder/bin
