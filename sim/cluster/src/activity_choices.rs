//! The activities that options choose, as far as options know them: what [`crate::activity`] makes of them in a run is hidden from options and
//! from clusters.

use crate::prelude::*;
use std::any::Any;
use std::fmt::Debug;

/// What options know of an activity.
pub(crate) trait Chosen: Any + Debug {
    /// The layouts of volumes that the run has because of it.
    fn layouts(&self) -> Vec<Layout>;

    /// True if devices may serve the locks of a volume that it makes or changes.
    fn uses_device_locks(&self) -> bool;

    /// How many candidates the array has in place of its one monitor.
    fn candidates(&self) -> u16;

    /// True for an error that it may cause.
    fn excuses(&self, error: &HostError) -> bool;

    fn copied(&self) -> Box<dyn Chosen>;
}

impl Clone for Box<dyn Chosen> {
    fn clone(&self) -> Box<dyn Chosen> {
        (**self).copied()
    }
}

/// One of them, with the source of what it does.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub name: &'static str,
    pub chosen: Box<dyn Chosen>,
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Chosen> {
        self.0.iter().map(|choice| &*choice.chosen)
    }
}
