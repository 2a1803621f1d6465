//! The activities that options choose, as far as options know them: what [`crate::activity`] makes of them in a run is hidden from options and
//! from clusters.

use crate::prelude::*;
use std::any::Any;
use std::fmt::Debug;
use std::rc::Rc;

/// An activity as options contain it, which they can only show.
pub(crate) trait Contained: Any + Debug {}

impl<A: Any + Debug> Contained for A {}

/// One of them, with what options know of it.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub name: &'static str,
    pub activity: Rc<dyn Contained>,
    /// The layouts of volumes that the run has because of it.
    pub layouts: Vec<Layout>,
    /// True if devices may serve the locks of a volume that it makes or changes.
    pub uses_device_locks: bool,
    /// How many candidates the array has in place of its one monitor; 0 of an activity that changes nothing in that.
    pub candidates: u16,
    /// True for an error that it may cause.
    pub excuses: fn(&HostError) -> bool,
    /// The source of what it does.
    pub rng: Rng,
    /// If it acts by itself, the mean time between two of its events.
    pub every: Option<Duration>,
}

/// The activities of a run, in the order in which they are drawn.
#[derive(Clone, Debug, Default)]
pub struct Activities(pub(crate) Vec<Choice>);

impl Activities {
    /// True if there is an activity of this name.
    pub fn has(&self, name: &str) -> bool {
        self.has_any(&[name])
    }

    pub fn has_any(&self, names: &[&str]) -> bool {
        self.0.iter().any(|choice| names.contains(&choice.name))
    }

    pub fn remove(&mut self, names: &[&str]) {
        self.0.retain(|choice| !names.contains(&choice.name));
    }
}
