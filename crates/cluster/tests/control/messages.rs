//! Messages between components, and bytes that are not messages.

use crate::world::World;
use cluster::control::{ClusterMap, Message, Refusal, Start};
use kv::codec::Malformed;
use proptest::prelude::*;
use wire::release::RELEASES;

fn any_start() -> impl Strategy<Value = Start> {
    (1..u64::MAX, 1..u64::MAX, any::<[u64; 2]>()).prop_map(|(identity, life, [run, found])| Start {
        identity,
        life,
        run,
        found,
    })
}

fn any_result() -> impl Strategy<Value = Result<u64, Refusal>> {
    prop_oneof![
        any::<u64>().prop_map(Ok),
        Just(Err(Refusal::NoKeyspace("a:".into()))),
        Just(Err(Refusal::KeyspaceExists("a:".into()))),
        any::<u16>().prop_map(|id| Err(Refusal::NoNode(id))),
        any::<u16>().prop_map(|id| Err(Refusal::NoGroup(id))),
        Just(Err(Refusal::Other("no \u{2014} never".into()))),
        any::<(u16, u16)>().prop_map(|(since, level)| {
            Err(Refusal::LevelRises { what: "moving leaders".into(), since, level })
        }),
    ]
}

fn any_message() -> impl Strategy<Value = Message<'static>> {
    const SOME: &[u8] = b"some bytes";
    prop_oneof![
        (any_start(), any::<[u64; 4]>()).prop_map(|(start, [sequence, map_version, answered, durable])| {
            Message::Renew { start, sequence, map_version, answered, durable, releases: RELEASES }
        }),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(sequence, map_version, lasts_us)| {
            Message::Renewed { sequence, map_version, lasts_us }
        }),
        Just(Message::Map { bytes: SOME }),
        (any::<u64>(), any::<u64>()).prop_map(|(run, id)| Message::Ask { run, id, change: SOME }),
        (any::<u64>(), any::<u64>(), any_result()).prop_map(|(run, id, result)| Message::Answered {
            run,
            id,
            result
        }),
        (any_start(), any::<u64>()).prop_map(|(start, map_version)| {
            let why = "who are you?".into();
            Message::Refused { start, map_version, why }
        }),
        (any::<u64>(), any::<bool>(), any::<u64>(), any::<bool>()).prop_map(
            |(identity, has_begun, knows, is_question)| {
                Message::Hello { identity, has_begun, knows, is_question }
            }
        ),
        Just(Message::Replica { bytes: SOME }),
        Just(Message::Heard { bytes: SOME }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_message_survives_encoding_and_is_malformed_when_cut(message in any_message()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert_eq!(Message::decode(&bytes), Ok(message.clone()));
        if !matches!(message, Message::Replica { .. } | Message::Heard { .. }) {
            prop_assert!(Message::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn random_bytes_do_no_harm(pieces in prop::collection::vec(
        (1..10u8, prop::collection::vec(any::<u8>(), 0..60)), 1..20)) {
        let mut world = World::new(1, 3, 0);
        (1..=3).for_each(|id| world.start(id));
        world.become_whole();
        for (kind, mut bytes) in pieces {
            bytes.insert(0, kind);
            let _ = world.hand_over(2, 1, &bytes);
        }
        world.become_whole();
    }
}

#[test]
fn too_long_or_invalid_messages_are_malformed() {
    let malformed = |bytes: &[u8]| Message::decode(bytes).is_err();
    assert!(malformed(b""));
    assert!(malformed(b"\x0a"));
    let mut long = Vec::new();
    let change = vec![b' '; 2 << 20];
    Message::Ask { run: 1, id: 1, change: &change }.encode(&mut long);
    assert_eq!(Message::decode(&long), Err(Malformed("a control message is too long")));
    let mut world = World::new(1, 3, 0);
    world.start(1);
    let mut map = Vec::new();
    let nothing = ClusterMap::default().encode();
    Message::Map { bytes: &nothing }.encode(&mut map);
    assert!(world.hand_over(2, 1, &map).is_err(), "an invalid map");
}
