//! Prefetching: what several requests need is loaded into the processor's cache before the first of them is carried
//! out.

use crate::context::Context;
use kv::table::WARMED_KEYS_MAX;
use wire::resp::Arguments;

impl Context {
    /// Loads what is needed by requests whose first argument is a key here. Call it before the first of several
    /// requests is carried out: then the loads overlap.
    pub(crate) fn warm<'a>(&self, requests: impl Iterator<Item = Arguments<'a>> + Clone) {
        // With many keyspaces, sorting the keys by group would cost more than it saves.
        const GROUPS_MAX: usize = 4;
        let Some(first) = requests.clone().find_map(|arguments| arguments.get(1)) else { return };
        let tables = self.groups.iter().take(GROUPS_MAX).filter_map(|(id, group)| {
            let table = group.replica.as_ref()?.table();
            table.gains_by_warming(first).then_some((id, table))
        });
        let mut tables = tables.peekable();
        if tables.peek().is_none() {
            return;
        }
        // Loading for the clients of other databases is useless, and harmless.
        let database = self.groups.router().database(0);
        let mut keys = [(0, &b""[..]); WARMED_KEYS_MAX];
        let mut count = 0_usize;
        for key in requests.clone().filter_map(|arguments| arguments.get(1)) {
            // Many requests in a row are on one key. The last bytes tell most others apart.
            let before = keys[count.saturating_sub(1)].1;
            if count > 0 && before.last() == key.last() && before == key {
                continue;
            }
            let Some(place) = keys.get_mut(count) else { break };
            *place = (database.group_of(key), key);
            count += 1;
        }
        for (id, table) in tables {
            if table.warm(keys[..count].iter().filter(|(group, _)| *group == id).map(|(_, key)| *key)) {
                // Most commands on a member or a field have its name behind the key, and ZADD has it last.
                let names = requests.clone().filter_map(|arguments| {
                    let is_zadd = arguments.get(0)?.eq_ignore_ascii_case(b"zadd");
                    let name = arguments.get(if is_zadd { arguments.len() - 1 } else { 2 });
                    Some((arguments.get(1)?, name.unwrap_or_default()))
                });
                table.warm_names(names.filter(|(key, _)| database.group_of(key) == id));
            }
        }
    }
}
