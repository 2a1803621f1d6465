//! The list of all activities. A new one is its file and its line here.

use crate::activity::Entry;
use crate::options::{Choices, Kind, Options};
use crate::prelude::*;
use std::str::FromStr;

/// All activities, in the order in which they are drawn. Later ones heed those before.
const ACTIVITIES: [Entry; 26] = [
    Entry::of::<crate::sites::ParallelRaid>(),
    Entry::of::<crate::moving::Migrate>(),
    Entry::of::<crate::objects::ObjectUse>(),
    Entry::of::<crate::attribute_volumes::AttributeVolumeUse>(),
    Entry::of::<crate::disk_properties::LargeSectors>(),
    Entry::of::<crate::disk_properties::PageCache>(),
    Entry::of::<crate::fences::Fences>(),
    Entry::of::<crate::one_fault_at_a_time::Calm>(),
    Entry::of::<crate::reconnects::Reconnects>(),
    Entry::of::<crate::take_overs::TakeOvers>(),
    Entry::of::<crate::graceful_disconnect::Disconnects>(),
    Entry::of::<crate::permanent_failures::Deaths>(),
    Entry::of::<crate::more_volumes::MoreVolumes>(),
    Entry::of::<crate::degraded::DegradedDamage>(),
    Entry::of::<crate::record_damage::RecordDamage>(),
    Entry::of::<crate::file_use::Files>(),
    Entry::of::<crate::metadata_processes::MetadataServers>(),
    Entry::of::<crate::control::volume_lifecycle::CreateDelete>(),
    Entry::of::<crate::control::device_membership::AddRemove>(),
    Entry::of::<crate::control::file_systems::FileSystems>(),
    Entry::of::<crate::control::ChangeOptions>(),
    Entry::of::<crate::control::SilenceOptions>(),
    Entry::of::<crate::suspensions::Suspensions>(),
    Entry::of::<crate::nodes::Nodes>(),
    Entry::of::<crate::ranges::RangeUse>(),
    Entry::of::<crate::leaders::Leaders>(),
];

impl Options {
    pub fn of_seed(seed: u64) -> Options {
        Options::chosen(seed, &Choices::default())
    }

    /// The options of a seed with these choices.
    pub fn chosen(seed: u64, choices: &Choices) -> Options {
        let mut options = Options::without_activities(seed, choices);
        ACTIVITIES.iter().for_each(|entry| entry.draw(&mut options, choices));
        options
    }
}

impl Kind {
    /// All kinds: first the faults of the world.
    pub fn all() -> impl Iterator<Item = Kind> {
        let activities = ACTIVITIES.iter().flat_map(|entry| entry.kinds.iter().copied());
        let faults = FaultKind::ALL.iter().map(|kind| kind.name());
        // A fence is both.
        faults.filter(|name| *name != "fence").chain(activities).map(Kind)
    }
}

/// An unknown name of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no fault '{0}'; choose one of {names}", names = Kind::all().map(Kind::name).collect::<Vec<_>>().join(", "))]
pub struct NoSuchKind(String);

impl FromStr for Kind {
    type Err = NoSuchKind;

    fn from_str(text: &str) -> Result<Kind, NoSuchKind> {
        // Names of an earlier release.
        let name = match text {
            "rot" => "corruption",
            "mirrors" => "attribute-volumes",
            "leave" => "disconnect",
            _ => text,
        };
        Kind::all().find(|kind| kind.name() == name).ok_or_else(|| NoSuchKind(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in Kind::all() {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        for (earlier, kind) in [("rot", "corruption"), ("mirrors", "attribute-volumes"), ("leave", "disconnect")] {
            assert_eq!(earlier.parse(), Ok(Kind(kind)));
        }
        let error = "flood".parse::<Kind>().unwrap_err().to_string();
        assert!(error.contains("flood") && error.contains("host-crash, device-crash"), "{error}");
    }

    /// An activity can only heed those that are drawn before it.
    #[test]
    fn activities_are_apart_from_earlier_ones() {
        for (place, entry) in ACTIVITIES.iter().enumerate() {
            for other in entry.not_with {
                let is_before = ACTIVITIES[..place].iter().any(|earlier| earlier.name == *other);
                assert!(is_before, "{}: {other} is not drawn before", entry.name);
            }
        }
    }
}
