//! The embedded control plane: the array's folder.
