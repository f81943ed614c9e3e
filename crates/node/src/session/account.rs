//! How much of its node's time a client has used lately.

/// What a client has used counts half after this time. Of fifty clients with long requests each is served once in half a second;
/// what it used then must still count.
const HALVED_US: u64 = 1_000_000;

/// How much a client has used lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    used_ns: u64,
    at_us: u64,
}

impl Account {
    /// What was used, in nanoseconds, as it counts now.
    pub(crate) fn used_ns(&self, now_us: u64) -> u64 {
        let halved = now_us.saturating_sub(self.at_us) / HALVED_US;
        self.used_ns.checked_shr(halved.try_into().unwrap_or(u32::MAX)).unwrap_or(0)
    }

    /// Charges work that was done at `now_us`.
    pub(crate) fn charge(&mut self, nanoseconds: u64, now_us: u64) {
        if now_us.saturating_sub(self.at_us) >= HALVED_US {
            *self = Account { used_ns: self.used_ns(now_us), at_us: now_us };
        }
        self.used_ns = self.used_ns.saturating_add(nanoseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_has_used_counts_half_after_a_while_and_little_is_forgotten() {
        let mut account = Account::default();
        account.charge(8_000_000, 1_000_000);
        account.charge(8_000_000, 1_500_000);
        let used = |account: &Account, ms: u64| account.used_ns(1_000_000 + ms * 1000);
        assert_eq!(
            [used(&account, 999), used(&account, 1000), used(&account, 2000)],
            [16_000_000, 8_000_000, 4_000_000]
        );
        assert_eq!([used(&account, 50_000), used(&account, u64::MAX / 2000)], [0, 0]);
        account.charge(1_000_000, 3_000_000);
        assert_eq!([used(&account, 2000), used(&account, 3000)], [5_000_000, 2_500_000]);
        assert_eq!(account.used_ns(0), 5_000_000, "a reading of the clock may be older");
    }
}
