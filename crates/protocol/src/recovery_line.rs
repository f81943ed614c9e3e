//! What an operator copies when a keyspace does not come back by itself.

/// The name of a replica's keyspace, as it stands in such lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryLine {
    shell: String,
    redis: String,
}

impl Default for RecoveryLine {
    /// Of a keyspace whose name the replica does not know.
    fn default() -> RecoveryLine {
        RecoveryLine::new("PREFIX", "PREFIX")
    }
}

impl RecoveryLine {
    /// Takes the keyspace's prefix as a word for a shell, and as one for a client of Redis.
    pub fn new(shell: impl Into<String>, redis: impl Into<String>) -> RecoveryLine {
        RecoveryLine { shell: shell.into(), redis: redis.into() }
    }

    /// The line that shows what is lost and changes nothing. In parentheses for those who have only a client of Redis.
    pub fn shows(&self) -> String {
        format!("quorate keyspace recover {} (KEYSPACE RECOVER {})", self.shell, self.redis)
    }

    /// The line that gives up what is lost.
    pub fn accepts(&self) -> String {
        let RecoveryLine { shell, redis } = self;
        format!("quorate keyspace recover {shell} --accept-loss (KEYSPACE RECOVER {redis} ACCEPTLOSS)")
    }
}
