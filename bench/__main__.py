"""Measure, side by side in one run, what gpuinstall costs against what people would use otherwise."""
