//! Where the parity of a volume is computed: a setting of the volume.

use serde::{Deserialize, Serialize};

/// Where the parity of a volume is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SitePolicy {
    /// At the host that writes. That of volumes whose description names none.
    #[default]
    Originator,
    /// At the devices that hold the parity, unless a write covers whole stripes.
    AtParity,
    /// The same, except for large bands of many rows: the devices would exchange more than the host.
    Adaptive,
    /// At the devices that hold the parity, from content alone (the paper's solely-parity). For simulations: no volume has it, since the
    /// host always sends more than with [`SitePolicy::AtParity`].
    ParityNode,
}

impl SitePolicy {
    /// All policies that commands offer.
    pub const ALL: [SitePolicy; 3] = [SitePolicy::Originator, SitePolicy::AtParity, SitePolicy::Adaptive];

    pub const OF_NEW_VOLUMES: SitePolicy = SitePolicy::Adaptive;

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            SitePolicy::Originator => "originator",
            SitePolicy::AtParity => "at-parity",
            SitePolicy::Adaptive => "adaptive",
            SitePolicy::ParityNode => "parity-node",
        }
    }
}

braid_base::by_name!(SitePolicy or UnknownSitePolicy);

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no parity site '{0}': choose originator, at-parity or adaptive")]
pub struct UnknownSitePolicy(pub String);
