//! The roles that hosts of the array have had. A name that no host has now may be that of a host that has ended, or a mistake: fencing must
//! not confirm a mistake.

use crate::error::ControlError;
use crate::file::{self, Durability};
use crate::folder::LocalFolder;
use crate::paths::ROLES;
use serde::{Deserialize, Serialize};

/// So many are remembered; the oldest is forgotten first.
const ROLES_MAX: usize = 1000;

/// The roles, as they are stored.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Roles {
    schema: u64,
    roles: Vec<String>,
}

impl Roles {
    pub(crate) fn of(folder: &LocalFolder) -> Result<Roles, ControlError> {
        let none = Roles { schema: file::SCHEMA, roles: Vec::new() };
        Ok(file::read(&folder.path(ROLES))?.unwrap_or(none))
    }

    pub(crate) fn contains(&self, role: &str) -> bool {
        self.roles.iter().any(|known| known == role)
    }

    /// Remembers a role. The folder is locked.
    pub(crate) fn note(folder: &LocalFolder, role: &str) -> Result<(), ControlError> {
        let mut noted = Roles::of(folder)?;
        if noted.contains(role) {
            return Ok(());
        }
        noted.roles.drain(..(noted.roles.len() + 1).saturating_sub(ROLES_MAX));
        noted.roles.push(role.to_string());
        folder.replace(&folder.path(ROLES), &noted, Durability::Durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::folder::tests::Scratch;

    #[test]
    fn roles_of_hosts_that_have_ended_are_known_and_the_oldest_are_forgotten() {
        let (_scratch, folder) = Scratch::with_array("roles");
        let host = folder.leases().take_generation("nbd a:1", &Moment::now()).unwrap();
        folder.leases().release(host).unwrap();
        let is_known = |role: &str| Roles::of(&folder).unwrap().contains(role);
        assert_eq!(["nbd a:1", "nbd a:2", ""].map(is_known), [true, false, false]);
        (1..ROLES_MAX).for_each(|number| Roles::note(&folder, &number.to_string()).unwrap());
        assert!(is_known("nbd a:1"));
        Roles::note(&folder, "one more").unwrap();
        assert_eq!(["nbd a:1", "1", "one more"].map(is_known), [false, true, true]);
    }
}
