# A machine for pylock.cu126.toml.
# slurm has no words for: the processor, x86_64; glibc 2.28 or newer; driver 525.60.13 or newer, for 5.0, 5.2, 6.0, 6.1, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0.
# This checks it when the job starts: gpuinstall run --any COMMAND
#SBATCH --gres=gpu:1
# GPUs of a node: 5.0, 5.2, 6.0, 6.1, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0; a site has features for them
