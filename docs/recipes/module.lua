-- /shared/modulefiles/torch/1.lua, for Lmod. Its python, of recipes/module-python, chooses on each node when it is started,
-- so that a module that was loaded on a login node is right in a job too.
local folder = "/shared/project"

whatis("PyTorch for the GPUs of the node")
conflict("torch")
prepend_path("PATH", pathJoin(folder, "bin"))
