//! The handshake: two nodes prove to each other that they belong to the same cluster, before anything else is sent.
//!
//! ```text
//! dialer                                                       acceptor
//!    | Hello: version, cluster, own node, port, nonce, build, mac  |
//!    |------------------------------------------------------------>|
//!    | Challenge: version, own node, nonce, build, mac of all this |
//!    |<------------------------------------------------------------|
//!    | Proof: mac of all of the above                              |
//!    |------------------------------------------------------------>|
//! ```
//!
//! A build names its version and the releases that it understands ([`crate::release`]). Both sides speak the newest
//! release that both understand, on this connection. The macs cover the named releases, so an attacker on the way cannot
//! make two nodes speak an older release than they would; and both sides compute from the same bytes, so they agree.
//! Where there is no common release, the acceptor sends its Challenge all the same, so that both sides can report which
//! builds these are.
//!
//! After the build comes the [lineage] of the node: whether it belongs to the cluster as it began, or as an operator has
//! recovered it. Nodes of different lineages refuse each other in the same way, so that both learn the reason.
//!
//! *The layout of these messages stays as it is.* A later release may put more after the build, before the mac: an older
//! build skips what it does not know there, and its mac covers those bytes all the same. So any two builds from this one on can
//! read each other's build.
//!
//! A mac is HMAC-SHA-256 under the cluster's secret over the prover's role and every byte that both sides have sent so
//! far. The secret itself is never sent. Each side has put a fresh nonce into those bytes, so a replayed conversation
//! proves nothing; the roles differ, so a proof cannot be reflected to its sender; both nodes are named, so neither can
//! be passed off as another.
//!
//! The mac of the Hello proves less: an attacker that has recorded one can send it again, and gets a Challenge that it
//! cannot answer. But a stranger gets no reply at all, and an acceptor can keep its places for peers that know the
//! secret.
//!
//! From the secret and every byte of the handshake, both sides derive keys for each direction ([`crate::seal`]), which
//! encrypt and authenticate everything that follows on this connection, frame by frame.
//!
//! Its limits: an attacker that learns the secret can decrypt every connection it has recorded, and forge new ones.
//! Mutual TLS does more. A host that a node dials receives a mac against which it can test guesses of the secret
//! offline: the secret must be long and random, not a word.
//!
//! The messages are payloads of [`crate::greeting`] frames of at most [`PAYLOAD_BYTES_MAX`]. The kind of the Hello
//! determines which [`Lane`] between the two nodes this connection is.

use std::cmp::Ordering;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use kv::codec::{Malformed, Reader, Writer};
use sha2::Sha256;

use crate::lineage::{self, Lineage};
use crate::release::{BUILD_BYTES_MAX, Build, Release, Releases};
use crate::seal::{KEY_BYTES, Key, Session};

/// The version of the handshake. It does not change any more: releases are named within the handshake. Builds before the
/// first release had versions up to 6.
pub const VERSION: u16 = 7;

/// Longest handshake message, in bytes. Limits what a stranger can make a node store.
pub const PAYLOAD_BYTES_MAX: usize = 1024;

/// Longest cluster name, in bytes.
pub const CLUSTER_BYTES_MAX: usize = 64;

/// Random bytes, drawn for one handshake and never reused.
pub type Nonce = [u8; 16];

const MAGIC: [u8; 8] = *b"quorate\n";
const MAC_BYTES: usize = 32;
const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const HELLO_URGENT: u8 = 4;
const HELLO_SUCCESSOR: u8 = 5;
const HELLO_VOUCHING: u8 = 6;
const WRONG_SECRET: u8 = 7;
const GREETER: &[u8] = b"quorate hello";
const DIALER: &[u8] = b"quorate dialer";
const ACCEPTOR: &[u8] = b"quorate acceptor";
const DIALER_FRAMES: &[u8] = b"quorate frames of the dialer";
const ACCEPTOR_FRAMES: &[u8] = b"quorate frames of the acceptor";

/// The connections between two nodes. Short messages that must not wait behind long ones have a connection of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// For all messages, except those on the urgent connection if there is one.
    #[default]
    Main,
    /// For messages that must not wait.
    Urgent,
    /// Replaces the main one, which is read to its end first.
    Successor,
    /// For vouches of busy nodes. Release 1 does not know it.
    Vouching,
}

impl Lane {
    fn hello(self) -> u8 {
        match self {
            Lane::Main => HELLO,
            Lane::Urgent => HELLO_URGENT,
            Lane::Successor => HELLO_SUCCESSOR,
            Lane::Vouching => HELLO_VOUCHING,
        }
    }
}

/// The reason why a peer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The cluster's own name or secret is not usable.
    #[error("{0}")]
    Unusable(&'static str),
    /// The bytes received are not a handshake message.
    #[error("the peer does not speak Quorate's peer protocol: {0}")]
    NotAPeer(&'static str),
    /// The peer's build is older than the first release, or this build cannot read its handshake.
    #[error(
        "the peer greets in version {theirs} of the handshake, and this node in version {ours}: they were not made to work \
         together. Stop all nodes, and start all with one version of the program"
    )]
    AnotherVersion {
        /// The peer's version.
        theirs: u16,
        /// This node's version.
        ours: u16,
    },
    /// The peer belongs to another cluster.
    #[error("the peer belongs to cluster '{theirs}'; this node belongs to cluster '{ours}'")]
    AnotherCluster {
        /// The peer's cluster, in printable form.
        theirs: String,
        /// This node's cluster.
        ours: String,
    },
    /// The peer could not prove that it knows the secret.
    #[error(
        "the peer, as node {node}, does not have this cluster's secret: compare `secret` in its configuration file with this \
         node's"
    )]
    WrongSecret {
        /// The id that the peer claims.
        node: u16,
    },
    /// The peer says that this node does not have its secret. Nothing proves that: it is for the log alone.
    #[error(
        "the peer says that this node does not have its cluster's secret: compare `secret` in this node's configuration file \
         with the peer's"
    )]
    OwnSecretWrong,
    /// Two nodes have the same id, or a node dials itself.
    #[error("the peer says that it is node {node}, which is this node")]
    OwnId {
        /// This node's id.
        node: u16,
    },
    /// The peer is not a node that may connect, or not the node that was dialled.
    #[error("the peer says that it is node {node}, which is not expected here")]
    UnknownNode {
        /// The id that the peer claims.
        node: u16,
    },
    /// There is no release that both builds understand.
    #[error(
        "node {node} runs {theirs}, this node runs {ours}, and no release is known to both: upgrade in steps, all nodes to a \
         version between the two first"
    )]
    NoCommonRelease {
        /// The peer.
        node: u16,
        /// The peer's build.
        theirs: Build,
        /// This node's build.
        ours: Build,
    },
    /// The peer's folder belongs to another history of this cluster than this node's: one of them was not part of a
    /// recovery.
    #[error("{}", of_another_lineage(*node, *theirs, *ours))]
    AnotherLineage {
        /// The peer.
        node: u16,
        /// The peer's lineage.
        theirs: Lineage,
        /// This node's lineage.
        ours: Lineage,
    },
    /// A message arrived before the one that it answers.
    #[error("the peer's handshake messages are out of order")]
    OutOfOrder,
}

impl From<Malformed> for HandshakeError {
    fn from(error: Malformed) -> Self {
        HandshakeError::NotAPeer(error.0)
    }
}

fn of_another_lineage(node: u16, theirs: Lineage, ours: Lineage) -> String {
    match theirs.recoveries.cmp(&ours.recoveries) {
        Ordering::Greater => format!(
            "the cluster was recovered without this node's folder: node {node} is {theirs}, and this folder is {ours}. What it \
             holds does not count any more. To use this machine again, start it with an empty folder: see quorate node \
             replace and quorate join"
        ),
        Ordering::Less => format!(
            "node {node} has a folder {theirs}, and this cluster is {ours}: that folder was not part of the recovery, and \
             does not count any more. Stop that node; to use its machine again, start it with an empty folder: see quorate \
             node replace and quorate join"
        ),
        Ordering::Equal => format!(
            "two recoveries were made of this cluster: node {node} is {theirs}, and this node is {ours}. Decide which one \
             counts, stop the nodes of the other one, and start them with empty folders"
        ),
    }
}

/// This node's identity, and the secret that authenticates its peers.
#[derive(Clone)]
pub struct Identity {
    cluster: String,
    node: u16,
    port: u16,
    build: Build,
    /// `None`: this node has no map yet.
    lineage: Option<Lineage>,
    secret: Vec<u8>,
}

impl Identity {
    /// Returns the identity of `node` in `cluster`.
    ///
    /// # Errors
    /// [`HandshakeError::Unusable`] when the cluster's name is longer than [`CLUSTER_BYTES_MAX`], or the secret is
    /// empty, and so known to everyone.
    pub fn new(cluster: &str, node: u16, secret: &[u8]) -> Result<Self, HandshakeError> {
        if cluster.len() > CLUSTER_BYTES_MAX {
            return Err(HandshakeError::Unusable("the cluster's name is longer than 64 bytes"));
        }
        if secret.is_empty() {
            return Err(HandshakeError::Unusable("the cluster's secret is empty"));
        }
        let secret = secret.to_vec();
        let lineage = Some(Lineage::default());
        Ok(Identity { cluster: cluster.to_owned(), node, port: 0, build: Build::own(), lineage, secret })
    }

    /// Adds the port at which other nodes reach this one, which its Hello announces. Without this call it announces 0.
    #[must_use]
    pub fn reached_at_port(self, port: u16) -> Identity {
        Identity { port, ..self }
    }

    /// Names the history of the cluster that this node belongs to; `None` if it has no map yet. Without this call it is
    /// the history of a cluster that was never recovered.
    #[must_use]
    pub fn of_lineage(self, lineage: Option<Lineage>) -> Identity {
        Identity { lineage, ..self }
    }

    /// The history of the cluster that this node belongs to; `None` if it has no map yet.
    pub fn lineage(&self) -> Option<Lineage> {
        self.lineage
    }

    /// Names another build than this one, for tests of different builds.
    ///
    /// # Panics
    /// When the build's version is longer than [`BUILD_BYTES_MAX`].
    #[must_use]
    pub fn of_build(self, build: Build) -> Identity {
        assert!(build.version.len() <= BUILD_BYTES_MAX, "the version '{}' is too long", build.version);
        Identity { build, ..self }
    }

    /// Appends this node's build and lineage to a handshake message.
    fn put_build(&self, out: &mut Vec<u8>) {
        out.put_u16(self.build.releases.oldest);
        out.put_u16(self.build.releases.newest);
        out.put_bytes(self.build.version.as_bytes());
        lineage::put(out, self.lineage);
    }

    fn check_lineage(&self, node: u16, theirs: Option<Lineage>) -> Result<(), HandshakeError> {
        match (theirs, self.lineage) {
            (Some(theirs), Some(ours)) if !lineage::meets(Some(theirs), Some(ours)) => {
                Err(HandshakeError::AnotherLineage { node, theirs, ours })
            }
            _ => Ok(()),
        }
    }

    /// The newest release that this node and a build understand.
    fn common(&self, node: u16, theirs: &Build) -> Result<Release, HandshakeError> {
        let no_common =
            || HandshakeError::NoCommonRelease { node, theirs: theirs.clone(), ours: self.build.clone() };
        self.build.releases.common(theirs.releases).ok_or_else(no_common)
    }

    fn mac(&self, role: &[u8], transcript: &[u8]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.secret);
        mac.update(role);
        mac.update(transcript);
        mac
    }

    /// Derives one side's keys for frames from the bytes of the handshake.
    fn key(&self, role: &[u8], transcript: &[u8]) -> Key {
        let keys: [u8; KEY_BYTES] = self.mac(role, transcript).finalize().into_bytes().into();
        Key::new(keys)
    }

    fn check_version(&self, theirs: u16) -> Result<(), HandshakeError> {
        if theirs == VERSION { Ok(()) } else { Err(HandshakeError::AnotherVersion { theirs, ours: VERSION }) }
    }

    fn check_peer(&self, node: u16, is_expected: impl FnOnce(u16) -> bool) -> Result<(), HandshakeError> {
        if node == self.node {
            return Err(HandshakeError::OwnId { node });
        }
        if is_expected(node) { Ok(()) } else { Err(HandshakeError::UnknownNode { node }) }
    }
}

impl fmt::Debug for Identity {
    /// Omits the secret: identities end up in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { cluster, node, port, build, lineage, secret: _ } = self;
        formatter
            .debug_struct("Identity")
            .field("cluster", cluster)
            .field("node", node)
            .field("port", port)
            .field("build", build)
            .field("lineage", lineage)
            .finish_non_exhaustive()
    }
}

/// The side that opened the connection.
#[derive(Debug)]
pub struct Dialer {
    identity: Identity,
    /// Every byte that both sides have sent so far.
    transcript: Vec<u8>,
}

impl Dialer {
    /// Begins a handshake with a fresh `nonce` on the main lane; the second value is the Hello to send.
    pub fn new(identity: Identity, nonce: Nonce) -> (Self, Vec<u8>) {
        Dialer::on(Lane::Main, identity, nonce)
    }

    /// Like [`Dialer::new`], for any lane.
    pub fn on(lane: Lane, identity: Identity, nonce: Nonce) -> (Self, Vec<u8>) {
        let mut hello = vec![lane.hello()];
        hello.extend_from_slice(&MAGIC);
        hello.put_u16(VERSION);
        hello.put_bytes(identity.cluster.as_bytes());
        hello.put_u16(identity.node);
        hello.put_u16(identity.port);
        hello.extend_from_slice(&nonce);
        identity.put_build(&mut hello);
        let mac = identity.mac(GREETER, &hello).finalize().into_bytes();
        hello.extend_from_slice(&mac);
        fits(&hello);
        (Dialer { identity, transcript: hello.clone() }, hello)
    }

    /// Checks the acceptor's Challenge. Returns the Proof to send, the acceptor's id, now that it has proved that it
    /// knows the secret, and the session for the frames that follow, which has the release that both speak. `is_expected`
    /// returns whether the claimed node is the one that was dialled.
    ///
    /// # Errors
    /// [`HandshakeError`] with the reason why the peer is refused; close the connection.
    pub fn on_challenge(
        self,
        payload: &[u8],
        is_expected: impl FnOnce(u16) -> bool,
    ) -> Result<(Vec<u8>, u16, Session), HandshakeError> {
        let Dialer { identity, mut transcript } = self;
        if payload == [WRONG_SECRET] {
            return Err(HandshakeError::OwnSecretWrong);
        }
        let (signed, mac) = signed(payload)?;
        let mut reader = Reader::new(signed);
        if reader.u8()? != CHALLENGE {
            return Err(HandshakeError::OutOfOrder);
        }
        identity.check_version(reader.u16()?)?;
        let node = reader.u16()?;

        transcript.extend_from_slice(signed);
        // The secret first: a stranger's claims about itself do not deserve a more precise error.
        if identity.mac(ACCEPTOR, &transcript).verify_slice(mac).is_err() {
            return Err(HandshakeError::WrongSecret { node });
        }
        identity.check_peer(node, is_expected)?;
        let _nonce = reader.take(size_of::<Nonce>())?;
        let peer = take_build(&mut reader)?;
        let lineage = lineage::take(&mut reader)?;
        identity.check_lineage(node, lineage)?;
        let release = identity.common(node, &peer)?;
        transcript.extend_from_slice(mac);

        let mut proof = vec![PROOF];
        proof.extend_from_slice(&identity.mac(DIALER, &transcript).finalize().into_bytes());
        transcript.extend_from_slice(&proof);
        fits(&proof);
        let session = Session::new(
            (peer, lineage, release),
            identity.key(DIALER_FRAMES, &transcript),
            identity.key(ACCEPTOR_FRAMES, &transcript),
        );
        Ok((proof, node, session))
    }
}

/// The side that accepted the connection.
#[derive(Debug)]
pub struct Acceptor {
    identity: Identity,
    nonce: Nonce,
    lane: Lane,
    /// The port at which the dialer claims to be reachable.
    port: u16,
    /// The dialer's claims, and every byte that both sides have sent so far; `None` before the Hello.
    greeted: Option<Greeted>,
    /// What to send to a dialer that is refused at its Hello, before the connection is closed.
    notice: Option<[u8; 1]>,
}

/// A dialer that has sent its Hello.
#[derive(Debug)]
struct Greeted {
    node: u16,
    build: Build,
    lineage: Option<Lineage>,
    transcript: Vec<u8>,
}

impl Acceptor {
    /// Awaits a Hello, to be challenged with a fresh `nonce`.
    pub fn new(identity: Identity, nonce: Nonce) -> Self {
        Acceptor { identity, nonce, lane: Lane::Main, port: 0, greeted: None, notice: None }
    }

    /// The lane that the dialer requests, once its Hello has arrived; the main lane before. The Proof covers it.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The port at which other nodes reach the dialer, according to its Hello; 0 if unknown.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What to send to the dialer after [`Acceptor::on_hello`] has refused it, if anything: it shows nothing of the secret.
    pub fn notice(&self) -> Option<&[u8]> {
        self.notice.as_ref().map(<[u8; 1]>::as_slice)
    }

    /// The id that the dialer claims, once its Hello has arrived.
    pub fn claimed(&self) -> Option<u16> {
        self.greeted.as_ref().map(|greeted| greeted.node)
    }

    /// Why no Proof is awaited once the Challenge has been sent: the dialer is of another lineage, or there is no release
    /// that both builds understand.
    pub fn refusal(&self) -> Option<HandshakeError> {
        self.agreed(self.greeted.as_ref()?).err()
    }

    /// The release to speak with this dialer, if its lineage is this node's.
    fn agreed(&self, greeted: &Greeted) -> Result<Release, HandshakeError> {
        self.identity.check_lineage(greeted.node, greeted.lineage)?;
        self.identity.common(greeted.node, &greeted.build)
    }

    /// Checks the dialer's Hello and returns the Challenge to send. `is_expected` returns whether the claimed node may
    /// connect. The author of the Hello knew the secret, but the Hello may be a recorded one. Call [`Acceptor::refusal`]
    /// when the Challenge is sent.
    ///
    /// # Errors
    /// [`HandshakeError`] with the reason why the peer is refused; close the connection.
    pub fn on_hello(
        &mut self,
        payload: &[u8],
        is_expected: impl FnOnce(u16) -> bool,
    ) -> Result<Vec<u8>, HandshakeError> {
        // A nonce is used once: a second Hello would get a second mac with the same nonce.
        if self.greeted.is_some() {
            return Err(HandshakeError::OutOfOrder);
        }
        let mut reader = Reader::new(payload);
        let kind = reader.u8()?;
        let lanes = [Lane::Main, Lane::Urgent, Lane::Successor, Lane::Vouching];
        let lane = lanes.into_iter().find(|lane| lane.hello() == kind);
        let lane = lane.ok_or(HandshakeError::OutOfOrder)?;
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(HandshakeError::NotAPeer("it does not begin with the magic bytes"));
        }
        // The rest may differ in another version.
        self.identity.check_version(reader.u16()?)?;
        let cluster = reader.bytes()?;
        if cluster.len() > CLUSTER_BYTES_MAX {
            return Err(HandshakeError::NotAPeer("its cluster's name is too long"));
        }
        let (node, port) = (reader.u16()?, reader.u16()?);
        let (signed, mac) = signed(payload)?;
        if cluster != self.identity.cluster.as_bytes() {
            let theirs = cluster.escape_ascii().to_string();
            return Err(HandshakeError::AnotherCluster { theirs, ours: self.identity.cluster.clone() });
        }
        // Check the secret before the id, so that a wrong secret is not reported as an unknown node.
        if self.identity.mac(GREETER, signed).verify_slice(mac).is_err() {
            let _nonce = reader.take(size_of::<Nonce>())?;
            // Release 1 does not know the notice.
            let knows_notice = take_build(&mut reader).is_ok_and(|build| build.releases.newest >= 2);
            self.notice = knows_notice.then_some([WRONG_SECRET]);
            return Err(HandshakeError::WrongSecret { node });
        }
        let _nonce = reader.take(size_of::<Nonce>())?;
        // The fields after the build end before the mac.
        let read = payload.len() - reader.rest().len();
        let mut reader =
            Reader::new(signed.get(read..).ok_or(HandshakeError::NotAPeer("a message is too short"))?);
        let build = take_build(&mut reader)?;
        let lineage = lineage::take(&mut reader)?;
        // A node of another lineage must learn that, even if it was removed here since.
        if lineage::meets(lineage, self.identity.lineage) {
            self.identity.check_peer(node, is_expected)?;
        }

        let mut challenge = vec![CHALLENGE];
        challenge.put_u16(VERSION);
        challenge.put_u16(self.identity.node);
        challenge.extend_from_slice(&self.nonce);
        self.identity.put_build(&mut challenge);
        let mut transcript = [payload, &challenge].concat();
        let mac = self.identity.mac(ACCEPTOR, &transcript).finalize().into_bytes();
        challenge.extend_from_slice(&mac);
        transcript.extend_from_slice(&mac);
        fits(&challenge);
        assert_eq!(
            transcript.len(),
            payload.len() + challenge.len(),
            "the proofs cover every byte of both sides"
        );
        (self.lane, self.port) = (lane, port);
        self.greeted = Some(Greeted { node, build, lineage, transcript });
        Ok(challenge)
    }

    /// Checks the dialer's Proof. Returns the dialer's id, now that it has proved that it knows the secret, and the
    /// session for the frames that follow.
    ///
    /// # Errors
    /// [`HandshakeError`] with the reason why the peer is refused; close the connection.
    pub fn on_proof(self, payload: &[u8]) -> Result<(u16, Session), HandshakeError> {
        let greeted = self.greeted.as_ref().ok_or(HandshakeError::OutOfOrder)?;
        let release = self.agreed(greeted)?;
        let Some(Greeted { node, build, lineage, mut transcript }) = self.greeted else {
            return Err(HandshakeError::OutOfOrder);
        };
        let mut reader = Reader::new(payload);
        if reader.u8()? != PROOF {
            return Err(HandshakeError::OutOfOrder);
        }
        let mac = reader.take(MAC_BYTES)?;
        check_end(&reader)?;
        if self.identity.mac(DIALER, &transcript).verify_slice(mac).is_err() {
            return Err(HandshakeError::WrongSecret { node });
        }
        transcript.extend_from_slice(payload);
        let sends = self.identity.key(ACCEPTOR_FRAMES, &transcript);
        let receives = self.identity.key(DIALER_FRAMES, &transcript);
        Ok((node, Session::new((build, lineage, release), sends, receives)))
    }
}

/// Whether two secrets are equal. Takes the same time wherever they differ, so that a caller who measures it learns
/// nothing about the right secret except perhaps its length.
pub fn secret_matches(a: &[u8], b: &[u8]) -> bool {
    // Comparing macs instead of the secrets makes unequal lengths harmless too.
    let of = |secret: &[u8]| {
        let mut mac = hmac(b"quorate secret");
        mac.update(secret);
        mac
    };
    of(a).verify_slice(&of(b).finalize().into_bytes()).is_ok()
}

/// Returns a seed for the hashes of tables, equal on all nodes with this secret. It reveals nothing about the secret.
pub fn table_seed(secret: &[u8]) -> u64 {
    let mut mac = hmac(secret);
    mac.update(b"quorate tables");
    mac.finalize().into_bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// Asserts that the other side would not refuse a message for its length.
fn fits(message: &[u8]) {
    assert!(message.len() <= PAYLOAD_BYTES_MAX, "a handshake message of {} bytes", message.len());
}

/// Splits a message into the part that its mac covers, and the mac.
fn signed(payload: &[u8]) -> Result<(&[u8], &[u8]), HandshakeError> {
    let end = payload.len().checked_sub(MAC_BYTES);
    let end = end.ok_or(HandshakeError::NotAPeer("a message is too short"))?;
    Ok(payload.split_at(end))
}

/// Reads the other side's build. Bytes after it come from a later release.
fn take_build(reader: &mut Reader<'_>) -> Result<Build, HandshakeError> {
    let releases = Releases { oldest: reader.u16()?, newest: reader.u16()? };
    let version = reader.bytes()?;
    if version.len() > BUILD_BYTES_MAX || releases.oldest > releases.newest {
        return Err(HandshakeError::NotAPeer("its build is none"));
    }
    Ok(Build { version: version.escape_ascii().to_string(), releases })
}

fn check_end(reader: &Reader<'_>) -> Result<(), HandshakeError> {
    if reader.is_empty() { Ok(()) } else { Err(HandshakeError::NotAPeer("a message goes on after its end")) }
}
