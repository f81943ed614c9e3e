//! How much memory this process uses and may use, according to the system.

use std::fs;
use std::path::Path;

use rustix::param::page_size;

/// The share of the available memory that a node may use. The rest is for the system's buffers of sockets and files, for
/// fragmentation in the allocator, and for input that arrives before it is measured.
const SHARE: (u64, u64) = (3, 4);

/// The least memory that a node may be configured with, in bytes.
pub(crate) const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Roughly the value that a control group without a limit reports.
const NO_LIMIT: u64 = 1 << 62;

/// Returns the default limit of a node's memory, in bytes: three quarters of the machine's memory, or of its control
/// group's limit if that is less. 0 if the system does not report it.
pub fn default_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = machine.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let machine = kilobytes.map(|kilobytes| kilobytes * 1024);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, |file| fs::read_to_string(file).ok());
    let least = machine.into_iter().chain(limit).min();
    least.map_or(0, |bytes| bytes / SHARE.1 * SHARE.0)
}

/// Returns the default limit for each of `nodes` nodes on this machine.
pub fn share_bytes(nodes: usize) -> u64 {
    match default_bytes() {
        0 => 0,
        bytes => (bytes / nodes.max(1) as u64).max(MEMORY_BYTES_MIN),
    }
}

/// Returns the least memory limit of these control groups (the text of `/proc/self/cgroup`), of versions 1 and 2, and of
/// the groups around them.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|it| it == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the process may see its own group as the root, whatever its name.
        for ancestor in Path::new(group).ancestors() {
            let relative = ancestor.strip_prefix("/").unwrap_or(ancestor);
            let text = read(&Path::new(root).join(relative).join(file)).unwrap_or_default();
            let limit = text.trim().parse::<u64>().ok().filter(|bytes| *bytes < NO_LIMIT);
            least = least.into_iter().chain(limit).min();
        }
    }
    least
}

/// The resident memory of this process, in bytes; 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_control_groups_counts() {
        let read = |file: &Path| {
            let text = match file.to_str()? {
                "/sys/fs/cgroup/system.slice/q.service/memory.max" => "max\n",
                "/sys/fs/cgroup/system.slice/memory.max" => "1000000\n",
                "/sys/fs/cgroup/memory/docker/1234/memory.limit_in_bytes" => "9223372036854771712\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "2000000\n",
                _ => return None,
            };
            Some(text.to_string())
        };
        assert_eq!(group_limit("0::/system.slice/q.service\n", read), Some(1_000_000));
        assert_eq!(group_limit("9:name=systemd:/\n4:cpu,memory:/docker/1234\n", read), Some(2_000_000));
        assert_eq!(group_limit("3:cpuset:/docker/1234\n0::/\n", read), None);
        assert_eq!(group_limit("nonsense", read), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_a_bound() {
        let resident = resident_bytes();
        assert!(resident > 1 << 20 && default_bytes() > resident, "{resident} of {}", default_bytes());
    }
}
