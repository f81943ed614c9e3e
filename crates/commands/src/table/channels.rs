//! The rows of the commands on channels.

use super::row::{container, help_of, key, keys, node};
use crate::listening::Listening::{self, Channel, Pattern, Shard};
use crate::spec::Category::PubSub;
use crate::spec::ChannelCommand::{Counts, Names, PatternCount, Publish, Subscribe, Unsubscribe};
use crate::spec::Flag::{Fast, Loading, NoScript, PubSub as PubSubFlag, Stale};
use crate::spec::{ChannelCommand, CommandSpec, Flags, Group, KeyFlag, KeyFlags, NodeCommand};

/// Clients route these channels by their slots, as if they were keys.
const ROUTED: KeyFlags = KeyFlags::of(&[KeyFlag::NotKey]);

const fn listens(name: &'static str, arity: i16, command: ChannelCommand) -> CommandSpec {
    node(name, arity, NodeCommand::Channel(command))
        .flags(Flags::of(&[PubSubFlag, NoScript, Loading, Stale]))
        .in_categories(&[PubSub])
}

const fn subscribes(name: &'static str, how: Listening) -> CommandSpec {
    listens(name, -2, Subscribe(how))
}

const fn unsubscribes(name: &'static str, how: Listening) -> CommandSpec {
    listens(name, -1, Unsubscribe(how))
}

const fn publishes(name: &'static str, is_sharded: bool) -> CommandSpec {
    node(name, 3, NodeCommand::Channel(Publish { is_sharded }))
        .flags(Flags::of(&[PubSubFlag, Loading, Stale, Fast]))
        .in_categories(&[PubSub])
}

const fn about(name: &'static str, arity: i16, command: ChannelCommand) -> CommandSpec {
    node(name, arity, NodeCommand::Channel(command))
        .flags(Flags::of(&[PubSubFlag, Loading, Stale]))
        .in_categories(&[PubSub])
}

/// The rows, in the order of the listing.
pub(super) const CHANNELS: [CommandSpec; 9] = [
    subscribes("subscribe", Channel)
        .docs(Group::PubSub, "2.0.0", "O(N) for N channels")
        .help("channel [channel ...]", "Listens to channels, whichever node publishes"),
    unsubscribes("unsubscribe", Channel)
        .docs(Group::PubSub, "2.0.0", "O(N) for N channels")
        .help("[channel [channel ...]]", "Ends listening to channels, or to all of them"),
    subscribes("psubscribe", Pattern)
        .docs(Group::PubSub, "2.0.0", "O(N) for N patterns")
        .help("pattern [pattern ...]", "Listens to all channels whose names match"),
    unsubscribes("punsubscribe", Pattern)
        .docs(Group::PubSub, "2.0.0", "O(N) for N patterns")
        .help("[pattern [pattern ...]]", "Ends listening to patterns, or to all of them"),
    subscribes("ssubscribe", Shard)
        .keys(keys(ROUTED))
        .docs(Group::PubSub, "7.0.0", "O(N) for N channels")
        .help("shardchannel [shardchannel ...]", "Listens to channels of SPUBLISH, on any node"),
    unsubscribes("sunsubscribe", Shard)
        .keys(keys(ROUTED))
        .docs(Group::PubSub, "7.0.0", "O(N) for N channels")
        .help(
            "[shardchannel [shardchannel ...]]",
            "Ends listening to channels of SPUBLISH, or to all of them",
        ),
    publishes("publish", false).docs(Group::PubSub, "2.0.0", "O(N+M) for N listeners and M patterns").help(
        "channel message",
        "Sends a message to all listeners, and returns how many there are on this node",
    ),
    publishes("spublish", true).keys(key(ROUTED)).docs(Group::PubSub, "7.0.0", "O(N) for N listeners").help(
        "shardchannel message",
        "Sends a message to all listeners of SSUBSCRIBE, and returns how many there are on this node",
    ),
    container("pubsub", &PUBSUB)
        .docs(Group::PubSub, "2.8.0", "Depends on the subcommand")
        .help("", "Holds commands about the listeners on this node"),
];

static PUBSUB: [CommandSpec; 6] = [
    about("pubsub|channels", -2, Names(Channel))
        .docs(Group::PubSub, "2.8.0", "O(N) for N channels")
        .help("[pattern]", "Returns the channels that clients of this node listen to"),
    about("pubsub|numsub", -2, Counts(Channel))
        .docs(Group::PubSub, "2.8.0", "O(N) for N channels")
        .help("[channel [channel ...]]", "Returns how many clients of this node listen to channels"),
    about("pubsub|numpat", 2, PatternCount)
        .docs(Group::PubSub, "2.8.0", "O(1)")
        .help("", "Returns how many patterns clients of this node listen to"),
    about("pubsub|shardchannels", -2, Names(Shard))
        .docs(Group::PubSub, "7.0.0", "O(N) for N channels")
        .help("[pattern]", "Returns the channels of SSUBSCRIBE that clients of this node listen to"),
    about("pubsub|shardnumsub", -2, Counts(Shard)).docs(Group::PubSub, "7.0.0", "O(N) for N channels").help(
        "[shardchannel [shardchannel ...]]",
        "Returns how many clients of this node listen to channels of SSUBSCRIBE",
    ),
    help_of("pubsub|help").docs(Group::PubSub, "6.2.0", "O(1)"),
];
