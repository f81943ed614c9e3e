//! Prevents the guessing of passwords: the passwords of an address that fails too often are not compared for a
//! moment.
//!
//! An address may fail [`FAILURES_BURST`] times, and [`FAILURES_PER_S`] times a second after that. Beyond that, its
//! passwords are not compared at all, so that waiting less for the answer, or trying over many connections, gains
//! nothing. An application that merely has an old password does not use up the allowance of others behind the same
//! address. A user that has logged in from an address before has an allowance of its own there, so that guesses at other
//! users from the same address do not keep it out. An attacker who guesses at such a user gets these guesses in addition. All
//! addresses of an IPv6 network (the first 64 bits) count as one, since a client that has one of them
//! has all.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Failures that one address may have at once.
pub(crate) const FAILURES_BURST: u64 = 100;

/// Failures that an address may have again after each second.
pub(crate) const FAILURES_PER_S: u64 = 20;

/// The maximum number of addresses that are remembered. Beyond that, the one that failed longest ago is forgotten.
pub(crate) const ADDRESSES_MAX: usize = 4096;

/// The maximum number of users, each at an address, who are known to have logged in there. Beyond that, the one that did so
/// longest ago is forgotten.
pub(crate) const KNOWN_USERS_MAX: usize = 4096;

/// This many recent failures are answered at once; each further one delays the answer by this many milliseconds more,
/// up to the last number.
const FAILURES_FREE: u64 = 3;
const DELAY_MS: u64 = 20;
const DELAY_MS_MOST: u64 = 1000;

const COST_US: u64 = 1_000_000 / FAILURES_PER_S;

/// Lines in the log at once, and how long it takes until there may be one more: guesses must not fill the log.
const LINES_BURST: u64 = 10;
const LINE_US: u64 = 6_000_000;

/// Returns what counts as one address.
fn place_of(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) & NETWORK).to_be_bytes()),
        address => address,
    }
}

/// The recent failures to authenticate, by address.
#[derive(Debug, Default)]
pub struct AuthGuard {
    /// For each address, the time in microseconds up to which its failures have used up its allowance: a leaky bucket,
    /// expressed as a time.
    spent_until_us: BTreeMap<IpAddr, u64>,
    /// The users who have logged in from an address, by it and their names.
    known: BTreeMap<(IpAddr, Vec<u8>), Known>,
    /// All failures, including attempts whose passwords were not compared.
    failures: u64,
    /// The time up to which lines in the log have used up their allowance.
    lines_until_us: u64,
}

/// A user who has logged in from an address.
#[derive(Debug, Default)]
struct Known {
    /// The last time in microseconds that it did.
    at_us: u64,
    /// The time up to which its failures there, while those of its address are used up, have used up its own allowance.
    spent_until_us: u64,
}

/// Whether failures leave room for one more, if they have used up the allowance until then.
fn is_left(spent_until_us: u64, now_us: u64) -> bool {
    spent_until_us.saturating_sub(now_us) <= (FAILURES_BURST - 1) * COST_US
}

impl AuthGuard {
    /// Whether all passwords of this address are compared now.
    pub fn listens_to_all(&self, address: IpAddr, now_us: u64) -> bool {
        is_left(self.spent_until_us.get(&place_of(address)).copied().unwrap_or(0), now_us)
    }

    /// Whether a password of this user, from this address, is compared now. The name is empty where only a password is sent.
    pub fn listens_to(&self, address: IpAddr, user: &[u8], now_us: u64) -> bool {
        self.listens_to_all(address, now_us) || {
            let known = self.known.get(&(place_of(address), user.to_vec()));
            known.is_some_and(|known| is_left(known.spent_until_us, now_us))
        }
    }

    /// Notes that a user has logged in from an address.
    pub fn logged_in(&mut self, address: IpAddr, user: &[u8], now_us: u64) {
        let place = (place_of(address), user.to_vec());
        if !self.known.contains_key(&place) && self.known.len() >= KNOWN_USERS_MAX {
            let oldest =
                self.known.iter().min_by_key(|(_, known)| known.at_us).map(|(oldest, _)| oldest.clone());
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        self.known.entry(place).or_default().at_us = now_us;
    }

    /// Notes that an address sent a wrong password of a user. Returns true when that is worth a line in the log: for the first
    /// of a series, and for the one after which the address's passwords are not compared any more.
    pub fn failed(&mut self, address: IpAddr, user: &[u8], now_us: u64) -> bool {
        self.failures += 1;
        self.spent_until_us.retain(|_, spent| *spent > now_us);
        let listened = self.listens_to_all(address, now_us);
        if !listened && let Some(known) = self.known.get_mut(&(place_of(address), user.to_vec())) {
            known.spent_until_us = known.spent_until_us.max(now_us) + COST_US;
            return false;
        }
        let address = place_of(address);
        if !self.spent_until_us.contains_key(&address) && self.spent_until_us.len() >= ADDRESSES_MAX {
            let oldest =
                self.spent_until_us.iter().min_by_key(|(_, spent)| **spent).map(|(oldest, _)| *oldest);
            oldest.and_then(|oldest| self.spent_until_us.remove(&oldest));
        }
        let spent = self.spent_until_us.entry(address).or_insert(now_us);
        let is_first = *spent <= now_us;
        *spent = (*spent).max(now_us) + COST_US;
        (is_first || listened != self.listens_to_all(address, now_us)) && self.takes_line(now_us)
    }

    fn takes_line(&mut self, now_us: u64) -> bool {
        let until = self.lines_until_us.max(now_us) + LINE_US;
        let is_taken = until - now_us <= LINES_BURST * LINE_US;
        if is_taken {
            self.lines_until_us = until;
        }
        is_taken
    }

    /// How long the answer to a failed attempt of this address is delayed. A few mistakes cost nothing; after that
    /// each failure within the last seconds makes the delay longer.
    pub fn delay(&self, address: IpAddr, now_us: u64) -> Duration {
        let spent = self.spent_until_us.get(&place_of(address)).copied().unwrap_or(0);
        let recent = spent.saturating_sub(now_us).div_ceil(COST_US);
        Duration::from_millis((recent.saturating_sub(FAILURES_FREE) * DELAY_MS).min(DELAY_MS_MOST))
    }

    /// Counts an attempt of an address whose password was not compared.
    pub fn refused(&mut self) {
        self.failures += 1;
    }

    /// All failures since the start.
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;
    const USER: &[u8] = b"u";

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn the_passwords_of_an_address_that_fails_too_often_are_not_compared_for_a_moment() {
        let mut guard = AuthGuard::default();
        let logged: u64 = (0..FAILURES_BURST).map(|_| u64::from(guard.failed(address(1), USER, 7))).sum();
        assert_eq!(logged, 2, "the first, and the last");
        assert!(!guard.listens_to(address(1), USER, 7));
        assert!(guard.listens_to(address(2), USER, 7), "it is another one");
        assert!(guard.listens_to(address(1), USER, 7 + COST_US), "one guess more");
        guard.failed(address(1), USER, 7 + COST_US);
        assert!(!guard.listens_to(address(1), USER, 7 + COST_US));
        assert!(guard.listens_to(address(1), USER, 60 * SECOND_US));
        assert_eq!(guard.failures(), FAILURES_BURST + 1);
    }

    #[test]
    fn a_user_who_has_logged_in_is_not_kept_out_by_others_at_its_address() {
        let mut guard = AuthGuard::default();
        guard.logged_in(address(1), b"known", 7);
        (0..FAILURES_BURST).for_each(|_| _ = guard.failed(address(1), b"known", 7));
        assert!(!guard.listens_to(address(1), USER, 7) && guard.listens_to(address(1), b"known", 7));
        assert!(!guard.listens_to_all(address(1), 7));
        // An attacker who guesses at this user gets twice the guesses, and no more.
        let mut guesses = 0;
        while guard.listens_to(address(1), b"known", 7) {
            guard.failed(address(1), b"known", 7);
            guesses += 1;
        }
        assert_eq!(guesses, FAILURES_BURST);
        assert!(guard.listens_to(address(1), b"known", 7 + COST_US));
        // At another address it is unknown.
        (0..FAILURES_BURST).for_each(|_| _ = guard.failed(address(2), USER, 7));
        assert!(!guard.listens_to(address(2), b"known", 7));
    }

    #[test]
    fn users_who_have_logged_in_are_limited_in_number() {
        let mut guard = AuthGuard::default();
        for number in 0..2 * KNOWN_USERS_MAX as u32 {
            guard.logged_in(address(1), &number.to_be_bytes(), number.into());
        }
        assert_eq!(guard.known.len(), KNOWN_USERS_MAX);
        (0..FAILURES_BURST).for_each(|_| _ = guard.failed(address(1), USER, SECOND_US));
        let knows = |number: u32| guard.listens_to(address(1), &number.to_be_bytes(), SECOND_US);
        assert!(!knows(KNOWN_USERS_MAX as u32 - 1) && knows(KNOWN_USERS_MAX as u32));
    }

    #[test]
    fn answers_are_delayed_longer_the_more_often_an_address_fails() {
        let mut guard = AuthGuard::default();
        let delays: Vec<u128> = (0..FAILURES_BURST)
            .map(|_| {
                guard.failed(address(1), USER, 7);
                guard.delay(address(1), 7).as_millis()
            })
            .collect();
        assert_eq!(delays[..5], [0, 0, 0, 20, 40]);
        assert_eq!(delays[99], 1000);
        assert_eq!(guard.delay(address(2), 7), Duration::ZERO);
        assert_eq!(guard.delay(address(1), 60 * SECOND_US), Duration::ZERO);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let mut guard = AuthGuard::default();
        let of = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 7, 1, 2, 3, last]);
        (0..FAILURES_BURST as u16).for_each(|last| _ = guard.failed(of(last), USER, 7));
        assert!(!guard.listens_to(of(1000), USER, 7));
        assert!(guard.listens_to(IpAddr::from([0x2001, 0xdb8, 0, 8, 1, 2, 3, 4]), USER, 7));
        let mapped = |last: u8| IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, u16::from(last)]);
        (0..FAILURES_BURST).for_each(|_| _ = guard.failed(mapped(1), USER, 7));
        assert!(!guard.listens_to(address(1), USER, 7) && guard.listens_to(mapped(2), USER, 7));
    }

    #[test]
    fn guesses_do_not_fill_the_log() {
        let mut guard = AuthGuard::default();
        // Each guess comes when the allowance that the previous one used is restored, so each is the first of a
        // series.
        let failures = (0..60 * SECOND_US)
            .step_by(COST_US as usize + 1)
            .map(|at_us| guard.failed(address(1), USER, at_us));
        let logged = failures.filter(|is_logged| *is_logged).count();
        assert_eq!(logged as u64, LINES_BURST + 10 - 1);
    }

    #[test]
    fn the_rate_limits_guesses_over_time() {
        let mut guard = AuthGuard::default();
        let mut looked_at = 0;
        for at_us in (0..10 * SECOND_US).step_by(100) {
            if guard.listens_to(address(1), USER, at_us) {
                guard.failed(address(1), USER, at_us);
                looked_at += 1;
            }
        }
        assert_eq!(looked_at, FAILURES_BURST + 10 * FAILURES_PER_S - 1);
    }

    #[test]
    fn addresses_are_forgotten_with_their_failures_and_limited_in_number() {
        let mut guard = AuthGuard::default();
        for number in 0..2 * ADDRESSES_MAX as u32 {
            guard.failed(IpAddr::from(number.to_be_bytes()), USER, 0);
        }
        assert_eq!(guard.spent_until_us.len(), ADDRESSES_MAX);
        guard.failed(address(1), USER, SECOND_US);
        assert_eq!(guard.spent_until_us.len(), 1);
    }
}
