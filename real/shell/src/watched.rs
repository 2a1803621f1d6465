//! A machine whose state other tasks of its thread read while it runs. They need no message, and wake no task. They can't change it: whatever
//! changes a machine is an input.

use braid_base::{Level, Now, Time, VolumeId};
use braid_machine::{EffectsOf, HostMachine, InputOf, Machine};
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::watch;

/// The machine.
pub struct Watched<M> {
    machine: Rc<RefCell<M>>,
    /// Publishes a part of its state after each step.
    publish: Option<Publish<M>>,
}

type Publish<M> = Box<dyn Fn(&M)>;

/// Read access to a [`Watched`] machine.
#[derive(Debug)]
pub struct View<M>(Rc<RefCell<M>>);

impl<M> Watched<M> {
    pub fn new(machine: M) -> (Watched<M>, View<M>) {
        let machine = Rc::new(RefCell::new(machine));
        (Watched { machine: machine.clone(), publish: None }, View(machine))
    }

    /// As [`Watched::new`], with a part of the state of which changes are to be told.
    pub fn publishing<S: PartialEq + 'static>(
        machine: M,
        part: impl Fn(&M) -> S + 'static,
    ) -> (Watched<M>, View<M>, watch::Receiver<S>) {
        let (told, seen) = watch::channel(part(&machine));
        let (watched, view) = Watched::new(machine);
        let publish = move |machine: &M| {
            told.send_if_modified(|told| {
                let found = part(machine);
                let is_new = *told != found;
                *told = found;
                is_new
            });
        };
        (Watched { publish: Some(Box::new(publish)), ..watched }, view, seen)
    }
}

impl<M> View<M> {
    pub fn look<T>(&self, at: impl FnOnce(&M) -> T) -> T {
        at(&self.0.borrow())
    }
}

impl<M> Clone for View<M> {
    fn clone(&self) -> View<M> {
        View(self.0.clone())
    }
}

impl<M: HostMachine> HostMachine for Watched<M> {
    fn knows(&self, volume: VolumeId) -> bool {
        self.machine.borrow().knows(volume)
    }
}

impl<M: Machine> Machine for Watched<M> {
    type Request = M::Request;
    type Outcome = M::Outcome;
    type Disk = M::Disk;

    fn step(&mut self, now: Now, input: InputOf<M>, out: &mut EffectsOf<M>) {
        let mut machine = self.machine.borrow_mut();
        machine.step(now, input, out);
        self.publish.iter().for_each(|publish| publish(&machine));
    }

    fn level(&self) -> Level {
        self.machine.borrow().level()
    }

    fn deadline(&self) -> Option<Time> {
        self.machine.borrow().deadline()
    }

    fn invariants(&self) {
        self.machine.borrow().invariants();
    }
}
