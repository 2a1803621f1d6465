//! Tests with real processes, disks and clients.
