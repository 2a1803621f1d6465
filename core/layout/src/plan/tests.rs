//! Plans, carried out on arrays in memory and compared with a flat row of bytes.
