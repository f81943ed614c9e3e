//! Whatever bytes a peer sends, a replica does not panic: it refuses them when it reads them, or takes them
//! literally.

use super::World;
use crate::kit::random::Random;
use crate::kit::{Asked, Letter};
use kv::Command;
use protocol::abd::{Message, Options, Timing};
use protocol::{Request, Ticket};

/// A group in which all kinds of messages are under way: clients send requests, node 3 refills, tombstones are
/// collected.
fn busy_world(random: &mut Random) -> World {
    let mut timing = Timing::default();
    (timing.upkeep.sweep_ms, timing.upkeep.chunk_bytes) = (10, 30);
    let mut world = World::new(3, Options::default(), timing);
    for id in world.members() {
        let consequences = world.start(id);
        world.post(consequences.letters);
    }
    for step in 0..200 + random.below(100) {
        world.time_us += 5000;
        if step == 120 {
            world.crash(3, 0);
            let consequences = world.start(3);
            world.post(consequences.letters);
        }
        for id in world.members() {
            let ticket = Ticket { client: u64::from(id), sequence: step };
            let deadline_us = world.time_us + 1_000_000;
            let asked = Asked { ticket, follows: false, seen: 0, deadline_us };
            let key = [b'a' + random.below(3) as u8];
            let mut scratch = Vec::new();
            let command = match random.below(3) {
                0 => Command::Get { key: &key },
                1 => Command::Delete { keys: kv::List::build(&mut scratch, [&key[..]]) },
                _ => set(&key),
            };
            let mut letters = Vec::new();
            letters.extend(world.request(id, asked, Request::Command(&command)).letters);
            letters.extend(world.tick(id).letters);
            letters.extend(world.flush(id).letters);
            world.post(letters);
        }
        // Some letters stay under way.
        for _ in 0..random.below(1 + world.network.len() as u64) {
            let letter = world.network.remove(0);
            let consequences = world.deliver(&letter);
            world.post(consequences.letters);
        }
    }
    world
}

fn set(key: &[u8]) -> Command<'_> {
    let (condition, answer) = (kv::Condition::Always, kv::SetAnswer::Status);
    Command::Set { key, value: b"value", expiry: kv::Expiry::Clear, condition, answer }
}

/// Changes, adds or cuts off bytes.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(1 + bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.below(256) as u8),
            2 if at + 8 <= bytes.len() => bytes[at..at + 8].fill(0xff),
            _ if at < bytes.len() => {
                bytes[at] = [0, 1, 0x7f, 0xff, random.below(256) as u8][random.below(5) as usize]
            }
            _ => {}
        }
    }
}

#[test]
fn altered_messages_are_refused_or_taken_literally() {
    const WORLDS: u64 = 60;
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..WORLDS {
        let mut random = Random::new(seed);
        let mut world = busy_world(&mut random);
        world.peers_lie = true;
        let letters: Vec<Letter> = world.network.clone();
        for mut letter in letters {
            spoil(&mut random, &mut letter.bytes);
            match Message::decode(&letter.bytes) {
                Err(_) => refused += 1,
                Ok(_) => {
                    taken += 1;
                    world.deliver(&letter);
                    world.flush(letter.to);
                    world.tick(letter.to);
                }
            }
        }
        // Messages that were taken have no impossible consequences, such as numbers that overflow.
        for id in world.members() {
            world.time_us += 1_000_000;
            world.tick(id);
            world.flush(id);
        }
    }
    println!("{refused} refused, {taken} taken");
    assert!(refused > 100 && taken > 100, "both are to be seen");
}

#[test]
fn arbitrary_bytes_do_not_make_the_decoder_panic() {
    let mut random = Random::new(1);
    for _ in 0..200_000 {
        let length = random.below(60);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        if let Some(kind) = bytes.first_mut() {
            *kind = [1, 32, 33, 34, 35, 36, 37, 38, 39, 40][random.below(10) as usize];
        }
        if let Some(members) = bytes.get_mut(1) {
            *members %= 6;
        }
        let _ = Message::decode(&bytes); // It must return, with any result.
    }
}
