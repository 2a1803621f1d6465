//! The simulated world: event queue, network, disks, clocks, faults; it knows no protocol.
