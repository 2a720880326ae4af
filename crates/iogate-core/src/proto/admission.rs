//! Whether a client may go on with a session, or begin one.

use alloc::format;

use crate::refusal::{Refusal, errno};

/// A user that has been authenticated: its number, and that of its group.
pub type User = (u32, u32);

/// Whether `user` may go on with a session of `owner`.
///
/// # Errors
/// If it is another one's, or of another export than the client asks for.
pub fn may_resume(owner: User, user: User, is_same_export: bool) -> Result<(), Refusal> {
    match owner == user && is_same_export {
        true => Ok(()),
        false => Err(Refusal::new(errno::EACCES, "the session is another user's, or of another export")),
    }
}

/// A client without a session that is known.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// Its user.
    pub uid: u32,
    /// It asks for a session that is not known.
    pub had_session: bool,
    /// All servers behind this one can be asked.
    pub is_reached: bool,
    /// Sessions that its user has. Those that wait for their client count: each may have files open.
    pub sessions: usize,
    /// Sessions that a user may have.
    pub sessions_max: usize,
}

/// Whether a client may begin a session.
///
/// # Errors
/// If its user has too many. Also while a server behind this one is away of which the client may have asked something in a session before:
/// only that server can say whether it took effect.
pub fn may_begin(client: &Newcomer) -> Result<(), Refusal> {
    let Newcomer { uid, had_session, is_reached, sessions, sessions_max } = *client;
    if had_session && !is_reached {
        return Err(Refusal::new(errno::EAGAIN, "a server behind this one is not there: come again"));
    }
    if sessions >= sessions_max {
        let text = format!(
            "user {uid} has {sessions_max} sessions, which is the limit: end those that nobody needs"
        );
        return Err(Refusal::new(errno::EUSERS, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_gone_on_with_by_its_own_user_at_its_own_export() {
        assert_eq!(may_resume((1, 2), (1, 2), true), Ok(()));
        for (user, is_same_export) in [((3, 2), true), ((1, 3), true), ((1, 2), false)] {
            assert_eq!(may_resume((1, 2), user, is_same_export).unwrap_err().errno, errno::EACCES);
        }
    }

    #[test]
    fn a_user_has_so_many_sessions_and_no_more() {
        let client = Newcomer { uid: 7, had_session: false, is_reached: true, sessions: 3, sessions_max: 4 };
        assert_eq!(may_begin(&client), Ok(()));
        let refusal = may_begin(&Newcomer { sessions: 4, ..client }).unwrap_err();
        assert_eq!((refusal.errno, &refusal.text[..29]), (errno::EUSERS, "user 7 has 4 sessions, which "));
    }

    #[test]
    fn who_comes_back_waits_for_the_servers_behind_and_who_is_new_does_not() {
        let client = Newcomer { uid: 7, had_session: true, is_reached: false, sessions: 0, sessions_max: 4 };
        assert_eq!(may_begin(&client).unwrap_err().errno, errno::EAGAIN);
        assert_eq!(may_begin(&Newcomer { had_session: false, ..client }), Ok(()));
        assert_eq!(may_begin(&Newcomer { is_reached: true, ..client }), Ok(()));
    }
}
