//! Attacks on the frames of a link by an attacker on the network; all of them are detected.

use wire::frame::{self, FrameError, HEADER_BYTES, Next};
use wire::handshake::{Acceptor, Dialer, Identity, Lane};
use wire::seal::Session;

const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Both ends of a new connection: the dialer's and the acceptor's.
fn connect(lane: Lane, nonce: u8) -> (Session, Session) {
    let identity = |node| Identity::new("main", node, b"secret").expect("a usable identity");
    let (dialer, hello) = Dialer::on(lane, identity(2), [nonce; 16]);
    let mut acceptor = Acceptor::new(identity(1), [nonce + 1; 16]);
    let challenge = acceptor.on_hello(&hello, |_| true).expect("a right hello");
    let (proof, _, dialing) = dialer.on_challenge(&challenge, |_| true).expect("a right challenge");
    let (_, accepting) = acceptor.on_proof(&proof).expect("a right proof");
    (dialing, accepting)
}

fn sealed(session: &mut Session, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
    let seal = |payload: &&[u8]| {
        let mut bytes = Vec::new();
        frame::append(&mut bytes, |out| out.extend_from_slice(payload));
        session.sealer.seal(&mut bytes);
        session.sealer.removed(bytes.len());
        bytes
    };
    payloads.iter().map(seal).collect()
}

/// The frames that the receiver accepts before it finds a fault, and the fault.
fn taken(session: &mut Session, bytes: &[u8]) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let (mut payloads, mut bytes) = (Vec::new(), bytes.to_vec());
    let mut rest = &mut bytes[..];
    loop {
        match session.opener.next(rest, PAYLOAD_BYTES_MAX) {
            Ok(Next::Frame { payload, consumed }) => {
                payloads.push(payload.to_vec());
                rest = &mut rest[consumed..];
            }
            Ok(Next::Incomplete { .. }) => return (payloads, None),
            Err(error) => return (payloads, Some(error)),
        }
    }
}

#[test]
fn frames_arrive_in_both_directions_however_they_are_cut() {
    let (mut dialing, mut accepting) = connect(Lane::Main, 1);
    let large = vec![7; 100_000];
    let payloads: [&[u8]; 4] = [b"first", b"", &large, b"last"];
    let bytes = sealed(&mut dialing, &payloads).concat();
    let (mut buffer, mut got) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(11) {
        buffer.extend_from_slice(piece);
        while let Next::Frame { payload, consumed } =
            accepting.opener.next(&mut buffer, PAYLOAD_BYTES_MAX).expect("a right frame")
        {
            got.push(payload.to_vec());
            buffer.drain(..consumed);
        }
    }
    assert_eq!(got, payloads);
    let bytes = sealed(&mut accepting, &payloads).concat();
    assert_eq!(taken(&mut dialing, &bytes), (payloads.map(<[u8]>::to_vec).to_vec(), None));
}

#[test]
fn frames_that_wait_are_sealed_once_and_sent_ones_forgotten() {
    let (mut dialing, mut accepting) = connect(Lane::Main, 1);
    let (mut buffer, mut sent) = (Vec::new(), Vec::new());
    for number in 0..100_u8 {
        frame::append(&mut buffer, |out| out.extend_from_slice(&vec![number; usize::from(number)]));
        dialing.sealer.seal(&mut buffer);
        dialing.sealer.seal(&mut buffer);
        let count = buffer.len() * usize::from(number % 3) / 2;
        sent.extend(buffer.drain(..count));
        dialing.sealer.removed(count);
    }
    sent.append(&mut buffer);
    let (payloads, error) = taken(&mut accepting, &sent);
    assert_eq!((payloads.len(), error), (100, None));
}

#[test]
fn a_changed_bit_is_found_before_waiting_for_more_bytes() {
    let clean = sealed(&mut connect(Lane::Main, 1).0, &[b"before", b"payload", b"behind"]);
    let (begin, end) = (clean[0].len(), clean[0].len() + clean[1].len());
    let clean = clean.concat();
    for bit in begin * 8..end * 8 {
        let mut damaged = clean.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (_, mut accepting) = connect(Lane::Main, 1);
        let (payloads, error) = taken(&mut accepting, &damaged[..end]);
        assert_eq!(payloads, [b"before"], "bit {bit}");
        assert_eq!(error, Some(FrameError::Forged { sequence: 1 }), "bit {bit}");
    }
}

#[test]
fn a_frame_that_is_repeated_left_out_swapped_or_cut_is_found() {
    let clean = sealed(&mut connect(Lane::Main, 1).0, &[b"first", b"other", b"third"]);
    let pieces = |order: &[usize]| order.iter().flat_map(|index| clean[*index].clone()).collect::<Vec<u8>>();
    let mut cut = pieces(&[0, 1, 2]);
    cut.remove(clean[0].len() + HEADER_BYTES);
    let cases = [("repeated", pieces(&[0, 0, 1, 2])), ("left out", pieces(&[0, 2])), ("cut", cut)];
    let swapped = [("swapped", pieces(&[0, 2, 1])), ("repeated later", pieces(&[0, 1, 0]))];
    for (what, bytes) in cases.into_iter().chain(swapped) {
        let (_, mut accepting) = connect(Lane::Main, 1);
        let (_, error) = taken(&mut accepting, &bytes);
        assert!(matches!(error, Some(FrameError::Forged { .. })), "{what}: {error:?}");
    }
}

#[test]
fn a_frame_of_another_direction_lane_or_connection_is_found() {
    let (mut dialing, mut accepting) = connect(Lane::Main, 1);
    let back = sealed(&mut accepting, &[b"answer"]).concat();
    assert!(taken(&mut dialing, &back).1.is_none());
    for (what, bytes) in [
        ("reflected", back),
        ("urgent", sealed(&mut connect(Lane::Urgent, 1).0, &[b"answer"]).concat()),
        ("another connection", sealed(&mut connect(Lane::Main, 5).0, &[b"answer"]).concat()),
    ] {
        let (_, mut accepting) = connect(Lane::Main, 1);
        assert_eq!(
            taken(&mut accepting, &bytes),
            (vec![], Some(FrameError::Forged { sequence: 0 })),
            "{what}"
        );
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
    let mut bytes = sealed(&mut connect(Lane::Main, 1).0, &[b"payload"]).concat();
    let (_, mut accepting) = connect(Lane::Main, 1);
    let error = accepting.opener.next(&mut bytes[..HEADER_BYTES], 6);
    assert_eq!(error, Err(FrameError::TooLong { bytes: 7, bytes_max: 6 }));
}
