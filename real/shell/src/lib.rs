//! The real world: sockets, disks and timers that drive any machine.
