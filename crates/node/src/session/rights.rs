//! A client's user, and how thoroughly its requests are checked.

use super::Session;
use commands::users::{DEFAULT, User};
use std::rc::Rc;

/// How thoroughly a client's requests are checked before they are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The client may do everything.
    Free,
    /// The client may do what its user may.
    Limited,
    /// The client has to authenticate first.
    Unauthenticated,
}

impl Session {
    /// The client's user; `None` before authentication, and for parts of the server that act for no user.
    pub(crate) fn user(&self) -> Option<&Rc<User>> {
        self.user.as_ref()
    }

    /// The name of the user. A client that has not authenticated has no user yet, and is shown as the default
    /// user, as in Redis.
    pub(crate) fn user_name(&self) -> &[u8] {
        self.user.as_ref().map_or(DEFAULT, |user| &user.name)
    }

    /// How thoroughly the client's requests are checked.
    #[inline]
    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// From now on the client is this user; `None`: it is unauthenticated.
    pub(crate) fn become_user(&mut self, user: Option<Rc<User>>) {
        self.standing = match &user {
            Some(user) if user.is_free() => Standing::Free,
            Some(_) => Standing::Limited,
            None => Standing::Unauthenticated,
        };
        self.user = user;
    }

    /// From now on a part of the server acts for no user, and may do everything.
    pub(crate) fn become_server(&mut self) {
        (self.standing, self.user) = (Standing::Free, None);
    }

    /// Whether the client need not authenticate.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.standing != Standing::Unauthenticated
    }
}
