//! Finds the process that holds a port, to name it in an "in use" error.

use std::fs;
use std::path::Path;

/// Returns the process that listens on a TCP port, as `process 123 (redis-server)`.
///
/// Best effort: `None` if the system does not reveal it, or not to this user.
pub fn of_port(port: u16) -> Option<String> {
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| listening_socket(line, port)).map(|inode| format!("socket:[{inode}]"))
    });
    let names: Vec<String> = sockets.collect();
    if names.is_empty() {
        return None;
    }
    let mut processes = fs::read_dir("/proc").ok()?.flatten();
    processes.find_map(|process| {
        // Other folders are not of processes, and one (`self`) is this process under another name.
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        holds(&process.path(), &names).then(|| format!("process {id} ({})", name.trim()))
    })
}

/// Returns the inode of the socket in a line of the system's table, if it listens on the port.
fn listening_socket(line: &str, port: u16) -> Option<&str> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_whitespace();
    let (_, local) = fields.nth(1)?.rsplit_once(':')?;
    let is_listening = fields.nth(1)? == LISTENS && u16::from_str_radix(local, 16).ok()? == port;
    fields.nth(5).filter(|_| is_listening)
}

fn holds(process: &Path, sockets: &[String]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
    let targets = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    targets.into_iter().any(|target| sockets.iter().any(|name| target.as_os_str() == name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_holder_of_a_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let holder = of_port(port).unwrap();
        assert!(holder.starts_with(&format!("process {} (", std::process::id())), "{holder}");
        drop(listener);
        assert_eq!(of_port(port), None);
    }

    #[test]
    fn only_listening_sockets_count() {
        let line = |state: &str| {
            format!("  1: 0100007F:1B58 00000000:0000 {state} 00000000:00000000 00:0 0 0 0 4711 1")
        };
        assert_eq!(listening_socket(&line("0A"), 7000), Some("4711"));
        assert_eq!(listening_socket(&line("01"), 7000), None);
        assert_eq!(listening_socket(&line("0A"), 7001), None);
        assert_eq!(listening_socket("sl  local_address rem_address", 7000), None);
    }
}
