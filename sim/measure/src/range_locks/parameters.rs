//! All numbers that determine a run of the experiments on locks of ranges. The file with comments is
//! `sim/experiments/parameters/range-locks.toml`.

use crate::named::{Named, ParameterError, parameters};
use crate::parameters::{Network, Processor};
use braid_base::Callbacks;
use braid_wire::LockMode;

parameters! {
    /// The parameters of a run. Together with the seed they determine it completely.
    parameters RangeParameters {
        system: RangeNodes,
        workload: RangeWorkload,
        network: Network,
        tcp: Tcp,
        processor: Processor,
        run: RangeRun,
    }

    /// The numbers of clients and nodes.
    section RangeNodes {
        clients: u64 => 1.0..=4096.0,
        clients_per_node: u64 => 1.0..=64.0,
        lock_servers: u64 => 1.0..=64.0,
        /// Which nodes a lock server calls on.
        callbacks: Callbacks,
    }

    /// The steps of clients.
    section RangeWorkload {
        #[serde(with = "ModeName")]
        mode: LockMode,
        step: Step,
        /// The part of the file that a client accesses in a step.
        section_kib: u64 => 1.0..=1048576.0,
        /// A client locks its section in so many pieces, one after the other.
        pieces: u64 => 1.0..=1024.0,
        layout: Sections,
        /// How much more a node may keep than was locked, on either side.
        widen_kib: u64 => 0.0..=1048576.0,
        /// How often every client goes on to its neighbour's section. Only this is measured. With 0 the first step is.
        shifts: u64 => 0.0..=1024.0,
        start: Start,
        /// The clients begin a step within this time.
        spread_ms: f64 => 0.0..=1e6,
        /// How long a client uses what it has locked, in ms: mean and standard deviation.
        use_ms: f64 => 0.0..=1e6,
        use_deviation_ms: f64 => 0.0..=1e6,
        /// How long a node writes back what a client has written to its cache, before it gives up the lock.
        flush_ms: f64 => 0.0..=1e6,
    }

    /// How clients lock.
    #[serde(remote = "LockMode")]
    words ModeName {
        Shared,
        Exclusive,
    }

    /// What a client does with each piece.
    words Step {
        /// Locks it in `mode`, uses it, and unlocks it.
        Lock,
        /// The same over a shared lock of it, which all clients have acquired before.
        Promote,
    }

    /// Where the pieces of sections are.
    words Sections {
        /// One after the other.
        Apart,
        /// The first pieces of all sections, then all second pieces, and so on.
        Interleaved,
        /// All clients have the same section.
        Same,
    }

    /// When clients go on to the next step.
    words Start {
        /// When all have ended theirs, each at a random time within `spread_ms`.
        Together,
        /// As soon as they have ended their own; within `spread_ms` at first.
        Alone,
    }

    /// The acknowledgements of TCP.
    section Tcp {
        /// How long a node waits for a message that can carry an acknowledgement. The other end sends nothing meanwhile (Nagle's
        /// algorithm). 0: acknowledgements are sent at once.
        delayed_ack_ms: f64 => 0.0..=1000.0,
    }

    /// The length of the measurement.
    section RangeRun {
        /// Files, one after the other.
        files: u64 => 1.0..=1e6,
        /// Independent runs of each point.
        replications: u64 => 1.0..=1000.0,
    }
}

impl RangeParameters {
    /// The size of a section in bytes.
    pub fn section_bytes(&self) -> u64 {
        self.workload.section_kib * 1024
    }
}

impl Named for RangeParameters {
    fn check_together(&self) -> Result<(), ParameterError> {
        let (system, workload) = (&self.system, &self.workload);
        let wrong = |text: &str| Err(ParameterError::Together(text.to_string()));
        if !system.clients.is_multiple_of(system.clients_per_node) {
            return wrong("system.clients is not a multiple of system.clients_per_node");
        }
        if workload.shifts > 0 && workload.shifts + system.clients_per_node > system.clients {
            return wrong(
                "with so many workload.shifts, clients come back to sections of their own node: choose more system.clients",
            );
        }
        if workload.step == Step::Promote && (workload.shifts > 0 || workload.pieces > 1) {
            return wrong("workload.step=promote needs workload.shifts=0 and workload.pieces=1");
        }
        if workload.flush_ms > 0.0 && system.clients_per_node > 1 {
            return wrong("the clients of a node share its cache: workload.flush_ms needs system.clients_per_node=1");
        }
        if !self.section_bytes().is_multiple_of(workload.pieces) {
            return wrong("workload.section_kib can't be divided into workload.pieces");
        }
        self.network.check()
    }
}
