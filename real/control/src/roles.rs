//! The roles that hosts of the array have had. A name that no host has now may be that of a host that has ended, or a mistake: fencing must
//! not confirm a mistake.

use crate::error::ControlError;
use crate::file::{self, Durability};
use crate::folder::ArrayFolder;
use crate::paths::ROLES;
use serde::{Deserialize, Serialize};

/// So many are remembered; the oldest is forgotten first.
const ROLES_MAX: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Roles {
    schema: u64,
    roles: Vec<String>,
}

impl ArrayFolder {
    /// True if a host had this role, as far as that is remembered.
    pub fn had_role(&self, role: &str) -> Result<bool, ControlError> {
        Ok(self.roles()?.iter().any(|known| known == role))
    }

    /// Remembers a role. The folder is locked.
    pub(crate) fn note_role(&self, role: &str) -> Result<(), ControlError> {
        let mut roles = self.roles()?;
        if roles.iter().any(|known| known == role) {
            return Ok(());
        }
        roles.drain(..(roles.len() + 1).saturating_sub(ROLES_MAX));
        roles.push(role.to_string());
        self.replace(&self.path(ROLES), &Roles { schema: file::SCHEMA, roles }, Durability::Durable)
    }

    fn roles(&self) -> Result<Vec<String>, ControlError> {
        Ok(file::read::<Roles>(&self.path(ROLES))?.map_or(Vec::new(), |found| found.roles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::folder::tests::Scratch;

    #[test]
    fn roles_of_hosts_that_have_ended_are_known_and_the_oldest_are_forgotten() {
        let scratch = Scratch::new("roles");
        let folder = scratch.array();
        let host = folder.take_generation("nbd a:1", &Moment::now()).unwrap();
        folder.release(host).unwrap();
        assert_eq!(["nbd a:1", "nbd a:2", ""].map(|role| folder.had_role(role).unwrap()), [true, false, false]);
        (1..ROLES_MAX).for_each(|number| folder.note_role(&number.to_string()).unwrap());
        assert!(folder.had_role("nbd a:1").unwrap());
        folder.note_role("one more").unwrap();
        assert_eq!(["nbd a:1", "1", "one more"].map(|role| folder.had_role(role).unwrap()), [false, true, true]);
    }
}
