//! The users and their rights, and what was refused to them.

use cluster::configuration::Configuration;
use commands::users::{AclLog, Configured, Users};
use sha2::{Digest, Sha256};

/// Who may do what on this node.
pub(crate) struct Access {
    users: Users,
    /// The refusals that `ACL LOG` shows.
    log: AclLog,
    /// How many passwords were drawn.
    passwords_drawn: u64,
}

impl Access {
    pub(crate) fn new(configuration: &Configuration) -> Access {
        let users = Users::new(Configured {
            password: configuration.password.clone(),
            operator_password: configuration.operator_password.clone(),
            default_changes_cluster: configuration.default_changes_cluster,
        });
        Access { users, log: AclLog::default(), passwords_drawn: 0 }
    }

    /// The users and their rights.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    pub(crate) fn users_mut(&mut self) -> &mut Users {
        &mut self.users
    }

    /// The refusals that `ACL LOG` shows.
    pub(crate) fn log(&mut self) -> &mut AclLog {
        &mut self.log
    }

    /// Draws the next part of a password. The same in every run with the same seed.
    pub(crate) fn draw_password(&mut self, seed: &[u8]) -> impl Iterator<Item = u8> {
        self.passwords_drawn += 1;
        let mut drawn = Sha256::new();
        drawn.update(seed);
        drawn.update(self.passwords_drawn.to_le_bytes());
        drawn.finalize().into_iter()
    }
}
