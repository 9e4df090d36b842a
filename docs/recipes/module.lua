-- /shared/modulefiles/torch/1.lua, for Lmod. The module's python (recipes/module-python) selects the environment when it
-- starts, so a module that was loaded on a login node also works in a job.
local folder = "/shared/project"

whatis("PyTorch for the GPUs of the node")
conflict("torch")
prepend_path("PATH", pathJoin(folder, "bin"))
