"""A CPU backend for Triton's interpreter: a driver that says where tensors live, and no compiler."""
