"""Extensions that are compiled beside torch: which prebuilt file of which source loads beside which build."""
