"""A page in which one looks into a GPT and trains one."""
