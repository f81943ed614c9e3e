//! Which peers a handshake accepts and refuses.

use wire::handshake::{
    Acceptor, CLUSTER_BYTES_MAX, Dialer, HandshakeError, Identity, PAYLOAD_BYTES_MAX, VERSION,
    secret_matches, table_seed,
};
use wire::release::{Build, Releases};

const DIALER_NONCE: [u8; 16] = [1; 16];
const ACCEPTOR_NONCE: [u8; 16] = [2; 16];

fn identity(cluster: &str, node: u16, secret: &str) -> Identity {
    Identity::new(cluster, node, secret.as_bytes()).expect("a usable identity")
}

fn anyone(_: u16) -> bool {
    true
}

/// Runs a whole handshake; returns the ids that the dialer and the acceptor learn of each other, in this order.
fn shake(dialer: Identity, acceptor: Identity) -> Result<(u16, u16), HandshakeError> {
    let (dialer, hello) = Dialer::new(dialer, DIALER_NONCE);
    let mut acceptor = Acceptor::new(acceptor, ACCEPTOR_NONCE);
    let challenge = acceptor.on_hello(&hello, anyone)?;
    let (proof, acceptor_node, _) = dialer.on_challenge(&challenge, anyone)?;
    let (dialer_node, _) = acceptor.on_proof(&proof)?;
    for message in [hello, challenge, proof] {
        assert!(message.len() <= PAYLOAD_BYTES_MAX);
    }
    Ok((acceptor_node, dialer_node))
}

#[test]
fn two_nodes_of_one_cluster_learn_each_others_ids() {
    let longest = "c".repeat(CLUSTER_BYTES_MAX);
    for cluster in ["main", "", &longest] {
        assert_eq!(shake(identity(cluster, 1, "secret"), identity(cluster, 2, "secret")), Ok((2, 1)));
    }
}

#[test]
fn a_peer_without_the_secret_is_refused_by_both_sides() {
    let (dialer, hello) = Dialer::new(identity("main", 1, "guess"), DIALER_NONCE);
    let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    let error = acceptor.on_hello(&hello, anyone).unwrap_err();
    assert_eq!(error, HandshakeError::WrongSecret { node: 1 }, "and it gets no mac to try secrets against");
    let notice = acceptor.notice().expect("the dialer gets a notice").to_vec();
    assert_eq!(notice.len(), 1);
    assert_eq!(dialer.on_challenge(&notice, |_| true).map(|_| ()), Err(HandshakeError::OwnSecretWrong));

    // An acceptor that guesses the secret.
    let (_, hello) = Dialer::new(identity("main", 1, "guess"), DIALER_NONCE);
    let mut guessing = Acceptor::new(identity("main", 2, "guess"), ACCEPTOR_NONCE);
    let challenge = guessing.on_hello(&hello, anyone).expect("the same guess");
    let (dialer, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    let error = dialer.on_challenge(&challenge, anyone).map(|_| ()).unwrap_err();
    assert_eq!(error, HandshakeError::WrongSecret { node: 2 });
    assert!(
        error.to_string().starts_with("the peer, as node 2, does not have this cluster's secret: "),
        "{error}"
    );

    acceptor.on_hello(&hello, anyone).expect("the right secret");
    let forged = [&[3][..], &[0; 32]].concat();
    assert_eq!(acceptor.on_proof(&forged).map(|_| ()), Err(HandshakeError::WrongSecret { node: 1 }));
}

#[test]
fn a_peer_of_another_cluster_is_refused_even_with_the_same_secret() {
    let error = shake(identity("test\n", 1, "secret"), identity("main", 2, "secret")).unwrap_err();
    assert_eq!(
        error.to_string(),
        r"the peer belongs to cluster 'test\n'; this node belongs to cluster 'main'"
    );
}

#[test]
fn a_peer_of_another_version_is_refused_whatever_else_it_sends() {
    let (_, mut hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    hello[9..11].copy_from_slice(&(VERSION + 1).to_le_bytes());
    hello.truncate(11);
    let error =
        Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE).on_hello(&hello, anyone).unwrap_err();
    assert_eq!(error, HandshakeError::AnotherVersion { theirs: VERSION + 1, ours: VERSION });
    assert_eq!(
        error.to_string(),
        format!(
            "the peer greets in version {} of the handshake, and this node in version {VERSION}: they were not made to work \
             together. Stop all nodes, and start all with one version of the program",
            VERSION + 1
        )
    );
}

fn of_releases(node: u16, oldest: u16, newest: u16) -> Identity {
    let build = Build { version: format!("0.{newest}.0"), releases: Releases { oldest, newest } };
    identity("main", node, "secret").of_build(build)
}

#[test]
fn two_builds_agree_on_the_newest_release_that_both_know() {
    for (one, other, common) in [((1, 1), (1, 2), 1), ((1, 3), (2, 5), 3), ((2, 5), (1, 3), 3)] {
        let (dialer, hello) = Dialer::new(of_releases(1, one.0, one.1), DIALER_NONCE);
        let mut acceptor = Acceptor::new(of_releases(2, other.0, other.1), ACCEPTOR_NONCE);
        let challenge = acceptor.on_hello(&hello, anyone).expect("a peer");
        assert_eq!(acceptor.refusal(), None);
        let (proof, _, dialed) = dialer.on_challenge(&challenge, anyone).expect("a peer");
        let (_, accepted) = acceptor.on_proof(&proof).expect("a peer");
        assert_eq!((dialed.release, accepted.release), (common, common));
        assert_eq!(dialed.peer.releases, Releases { oldest: other.0, newest: other.1 });
        assert_eq!(accepted.peer.version, format!("0.{}.0", one.1));
    }
}

#[test]
fn two_builds_without_a_common_release_both_say_so() {
    let (dialer, hello) = Dialer::new(of_releases(1, 1, 2), DIALER_NONCE);
    let mut acceptor = Acceptor::new(of_releases(2, 3, 4), ACCEPTOR_NONCE);
    let challenge = acceptor.on_hello(&hello, anyone).expect("a peer");
    let refusal = acceptor.refusal().expect("no release is known to both").to_string();
    assert_eq!(
        refusal,
        "node 1 runs Quorate 0.2.0 (releases 1 to 2), this node runs Quorate 0.4.0 (releases 3 to 4), and no release is \
         known to both: upgrade in steps, all nodes to a version between the two first"
    );
    let error = dialer.on_challenge(&challenge, anyone).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("node 2 runs Quorate 0.4.0 (releases 3 to 4)"), "{error}");
    assert!(acceptor.on_proof(&[3; 33]).is_err(), "and nothing goes on");
}

/// Fields that a later release may add are skipped, and covered by the mac.
#[test]
fn fields_after_the_build_are_skipped() {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let (_, mut hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    hello.truncate(hello.len() - 32);
    hello.extend_from_slice(b"a field of a later release");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"secret").unwrap();
    mac.update(b"quorate hello");
    mac.update(&hello);
    hello.extend_from_slice(&mac.finalize().into_bytes());
    let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    acceptor.on_hello(&hello, anyone).expect("a peer of a later release");
    assert_eq!(acceptor.refusal(), None);
}

#[test]
fn a_node_refuses_a_peer_with_its_own_id() {
    let error = shake(identity("main", 1, "secret"), identity("main", 1, "secret")).unwrap_err();
    assert_eq!(error.to_string(), "the peer says that it is node 1, which is this node");
}

#[test]
fn a_node_that_is_not_in_the_cluster_is_refused() {
    let (_, hello) = Dialer::new(identity("main", 9, "secret"), DIALER_NONCE);
    let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    let error = acceptor.on_hello(&hello, |node| (1..=3).contains(&node)).unwrap_err();
    assert_eq!(error.to_string(), "the peer says that it is node 9, which is not expected here");
}

#[test]
fn a_dialer_refuses_another_node_than_it_dialled() {
    let (dialer, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    let challenge = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE)
        .on_hello(&hello, anyone)
        .expect("a peer");
    let error = dialer.on_challenge(&challenge, |node| node == 3).map(|_| ()).unwrap_err();
    assert_eq!(error, HandshakeError::UnknownNode { node: 2 });
}

#[test]
fn an_old_conversation_proves_nothing() {
    let (dialer, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    let challenge = acceptor.on_hello(&hello, anyone).expect("a peer");
    let (proof, _, _) = dialer.on_challenge(&challenge, anyone).expect("a peer");

    // To the acceptor, replayed by an eavesdropper on the dialer.
    let mut again = Acceptor::new(identity("main", 2, "secret"), [3; 16]);
    again.on_hello(&hello, anyone).expect("a hello proves little");
    assert_eq!(again.on_proof(&proof).map(|_| ()), Err(HandshakeError::WrongSecret { node: 1 }));

    // To the dialer, replayed by an eavesdropper on the acceptor.
    let (again, _) = Dialer::new(identity("main", 1, "secret"), [4; 16]);
    let answer = again.on_challenge(&challenge, anyone).map(|_| ());
    assert_eq!(answer, Err(HandshakeError::WrongSecret { node: 2 }));
}

#[test]
fn an_acceptors_own_mac_is_not_a_proof() {
    let (_, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    let challenge = acceptor.on_hello(&hello, anyone).expect("a peer");
    let reflected = [&[3][..], &challenge[challenge.len() - 32..]].concat();
    assert_eq!(acceptor.on_proof(&reflected).map(|_| ()), Err(HandshakeError::WrongSecret { node: 1 }));
}

#[test]
fn any_changed_bit_on_the_way_ends_the_handshake() {
    let messages = |changed: usize, bit: usize| -> Result<u16, HandshakeError> {
        let change = |index: usize, mut message: Vec<u8>| {
            if index == changed {
                let bit = bit % (message.len() * 8);
                message[bit / 8] ^= 1 << (bit % 8);
            }
            message
        };
        let (dialer, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
        let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
        let challenge = acceptor.on_hello(&change(0, hello), anyone)?;
        let (proof, _, _) = dialer.on_challenge(&change(1, challenge), anyone)?;
        acceptor.on_proof(&change(2, proof)).map(|(node, _)| node)
    };
    assert_eq!(messages(3, 0), Ok(1));
    for changed in 0..3 {
        for bit in 0..120 * 8 {
            assert!(messages(changed, bit).is_err(), "message {changed}, bit {bit}");
        }
    }
}

#[test]
fn a_message_that_is_too_short_or_too_long_is_refused() {
    let (dialer, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    let acceptor = || Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    for end in 0..hello.len() {
        assert!(acceptor().on_hello(&hello[..end], anyone).is_err(), "cut at {end}");
    }
    assert!(acceptor().on_hello(&[&hello[..], &[0]].concat(), anyone).is_err());

    let mut acceptor = acceptor();
    let challenge = acceptor.on_hello(&hello, anyone).expect("a peer");
    for end in 0..challenge.len() {
        let (dialer, _) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
        assert!(dialer.on_challenge(&challenge[..end], anyone).is_err(), "cut at {end}");
    }
    let (proof, _, _) = dialer.on_challenge(&challenge, anyone).expect("a peer");
    assert!(acceptor.on_proof(&proof[..proof.len() - 1]).is_err());
}

#[test]
fn messages_must_come_in_order() {
    let acceptor = || Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    assert_eq!(acceptor().on_proof(&[3; 33]).map(|_| ()), Err(HandshakeError::OutOfOrder));

    let (_, hello) = Dialer::new(identity("main", 1, "secret"), DIALER_NONCE);
    let mut acceptor = acceptor();
    acceptor.on_hello(&hello, anyone).expect("a peer");
    assert_eq!(acceptor.on_hello(&hello, anyone), Err(HandshakeError::OutOfOrder));
}

#[test]
fn a_peer_that_is_not_a_node_gets_an_error() {
    let mut acceptor = Acceptor::new(identity("main", 2, "secret"), ACCEPTOR_NONCE);
    let error = acceptor.on_hello(b"\x01GET / HTTP/1.1\r\n", anyone).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer does not speak Quorate's peer protocol: it does not begin with the magic bytes"
    );
}

#[test]
fn an_identity_needs_a_secret_and_a_short_name() {
    assert!(matches!(Identity::new("main", 1, b""), Err(HandshakeError::Unusable(_))));
    assert!(matches!(Identity::new(&"c".repeat(65), 1, b"s"), Err(HandshakeError::Unusable(_))));
}

#[test]
fn a_secret_is_never_shown() {
    let shown = format!("{:?}", Acceptor::new(identity("main", 2, "hidden"), ACCEPTOR_NONCE));
    assert!(!shown.contains("hidden") && !shown.contains(&format!("{:?}", b"hidden")), "{shown}");
}

#[test]
fn secrets_match_only_themselves() {
    assert!(secret_matches(b"secret", b"secret"));
    assert!(secret_matches(b"", b""));
    for other in [&b""[..], b"secre", b"secret\0", b"Secret", &[b's'; 100]] {
        assert!(!secret_matches(b"secret", other));
        assert!(!secret_matches(other, b"secret"));
    }
}

/// Scans continue at other nodes and after a restart, including a restart with a newer program: so the seed must not
/// change.
#[test]
fn the_seed_of_tables_follows_from_the_secret_alone() {
    let seed = table_seed(b"0123456789abcdef0123456789abcdef");
    assert_eq!(seed, 0x73cc_af54_cfb2_80fd, "{seed:#x}");
    assert_ne!(seed, table_seed(b"0123456789abcdef0123456789abcdeg"));
}

#[test]
fn nodes_of_different_lineages_refuse_each_other_and_both_learn_why() {
    use wire::lineage::Lineage;
    let of = |node, lineage| identity("main", node, "secret").of_lineage(lineage);
    let (old, new) = (Some(Lineage::default()), Some(Lineage { recoveries: 1, mark: 7 }));
    for (dialer_has, acceptor_has) in [(old, new), (new, old)] {
        let (dialer, hello) = Dialer::new(of(1, dialer_has), DIALER_NONCE);
        let mut acceptor = Acceptor::new(of(2, acceptor_has), ACCEPTOR_NONCE);
        let nobody = |_| false;
        let challenge =
            acceptor.on_hello(&hello, nobody).expect("so that the dialer learns it, removed or not");
        let refusal = acceptor.refusal().expect("another lineage").to_string();
        let error = dialer.on_challenge(&challenge, anyone).map(|_| ()).unwrap_err().to_string();
        let (left_behind, recovered) = if dialer_has == old { (error, refusal) } else { (refusal, error) };
        assert!(
            left_behind.starts_with("the cluster was recovered without this node's folder"),
            "{left_behind}"
        );
        assert!(recovered.contains("was not part of the recovery"), "{recovered}");
        assert!(acceptor.on_proof(&[3; 33]).is_err(), "and nothing goes on");
    }
    assert_eq!(shake(of(1, new), of(2, new)), Ok((2, 1)));
    assert_eq!(shake(of(1, None), of(2, new)), Ok((2, 1)), "a newcomer");
    let other = Some(Lineage { recoveries: 1, mark: 8 });
    let error = shake(of(1, other), of(2, new)).unwrap_err().to_string();
    assert!(error.contains("two recoveries were made of this cluster"), "{error}");
}
