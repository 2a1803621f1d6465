//! Machines of several types as one type, so that one world can run them all: the world's requests, outcomes and disk are those of all.

use crate::{Disk, DiskResult, Effects, Input, Machine, Never, OneDisk};
use braid_base::Now;

/// Steps a machine whose types are others than the world's. `request` and `outcome` translate. The world gives results of disk commands
/// only to machines with a disk.
pub fn step_as<M: Machine + ?Sized, R, O>(
    machine: &mut M,
    now: Now,
    input: Input<R, OneDisk>,
    out: &mut Effects<O, OneDisk>,
    request: impl FnOnce(R) -> M::Request,
    outcome: impl Fn(M::Outcome) -> O,
) {
    let result = |result: DiskResult| M::Disk::result(result).expect("a machine without a disk commands none");
    let mut effects = Effects::new();
    machine.step(now, input.convert(request, result), &mut effects);
    out.absorb(&mut effects, outcome, M::Disk::command);
}

/// Steps a machine that takes no requests; the world makes none to it.
pub fn step_server<M, R, O>(machine: &mut M, now: Now, input: Input<R, OneDisk>, out: &mut Effects<O, OneDisk>)
where
    M: Machine<Request = Never, Outcome = Never> + ?Sized,
{
    step_as(machine, now, input, out, |_| panic!("the machine takes no requests"), |never| match never {});
}

/// Within an implementation of [`Machine`] for what holds another machine: the deadline and the invariants are those of that machine.
/// `held_machine!(Role { Host, Device })` lists all variants of an enum; the machine is the first field of each. `held_machine!(host)` names
/// the field of a struct, which has the level of that machine, too.
#[macro_export]
macro_rules! held_machine {
    ($role:ident { $($variant:ident),* }) => {
        fn deadline(&self) -> Option<braid_base::Time> {
            match self {
                $($role::$variant(machine, ..) => machine.deadline(),)*
            }
        }

        fn invariants(&self) {
            match self {
                $($role::$variant(machine, ..) => machine.invariants(),)*
            }
        }
    };
    ($machine:tt) => {
        fn level(&self) -> braid_base::Level {
            self.$machine.level()
        }

        fn deadline(&self) -> Option<braid_base::Time> {
            self.$machine.deadline()
        }

        fn invariants(&self) {
            self.$machine.invariants();
        }
    };
}
