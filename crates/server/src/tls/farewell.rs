//! The end of a connection whose handshake failed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a client whose handshake failed may take to read the reason.
pub(super) const FAREWELL: Duration = Duration::from_millis(500);

/// Reads what still arrives: closing a socket with unread input resets it, and the reset would overtake the reason.
pub(super) async fn say_farewell(socket: &mut TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    let mut buffer = [0; 1 << 10];
    while socket.read(&mut buffer).await? > 0 {}
    Ok(())
}
