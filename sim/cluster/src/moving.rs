//! The runs in which the volume moves.

use crate::activity::{Activity, Draw, Feature, Options};
use crate::prelude::*;

/// The volume moves during the run: its changes are drawn and made by [`crate::control::ChangeOptions`].
#[derive(Clone, Debug)]
pub(crate) struct Migrate;

impl Activity for Migrate {}

impl Feature for Migrate {
    const NAME: &'static str = "migrate";
    const ONE_IN: u64 = 12;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Migrate> {
        if options.ordering == Ordering::None {
            return None;
        }
        // During a migration twice as much is written, so space must not be short. Several lock servers divide the locks by the place
        // of stripes, and then volumes are not migrated.
        options.lock_servers = options.lock_servers.min(1);
        // The blocks written to both layouts must fit into a batch of the journal.
        (options.chunks, options.journal_bytes) = (None, None);
        options.other_devices = draw.rng.below(4) as u16;
        Some(Migrate)
    }
}
