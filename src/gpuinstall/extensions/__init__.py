"""Extensions that are compiled beside torch: which prebuilt file loads beside which build."""
