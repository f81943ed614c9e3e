//! Parsing of the commands on expiry, and of the expiry options of others.

use kv::command::{ExpireCondition, ExpiryUnit};
use kv::{Answer, Command, Condition, Deadline, Expiry, Kinds, SetAnswer};
use wire::resp::Arguments;

use super::arguments::{Parsed, integer, is, key, parsers, value};
use super::error::printable;
use super::later::Looks;
use super::{CommandError, Context};

/// How an expiry is given: by an option of `SET` or `GETEX`, or by the command that means the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryOption {
    /// Seconds from now (`EX`).
    Seconds,
    /// Milliseconds from now (`PX`).
    Milliseconds,
    /// A Unix time in seconds (`EXAT`).
    AtSecond,
    /// A Unix time in milliseconds (`PXAT`).
    AtMillisecond,
}

impl ExpiryOption {
    /// Returns the option with this name.
    pub(super) fn named(option: &[u8]) -> Option<ExpiryOption> {
        let options = [
            ("EX", ExpiryOption::Seconds),
            ("PX", ExpiryOption::Milliseconds),
            ("EXAT", ExpiryOption::AtSecond),
            ("PXAT", ExpiryOption::AtMillisecond),
        ];
        options.into_iter().find(|(name, _)| is(option, name)).map(|(_, option)| option)
    }

    /// Whether this option may come after `before`: only the same option may be repeated.
    pub(super) fn may_follow(self, before: Option<(ExpiryOption, usize)>) -> bool {
        before.is_none_or(|(option, _)| option == self)
    }

    /// Reads the deadline from the argument at `index`, which must be positive.
    pub(super) fn deadline(
        self,
        command: &'static str,
        arguments: Arguments<'_>,
        index: usize,
        context: &Context,
    ) -> Result<Deadline, CommandError> {
        if integer(arguments, index)? <= 0 {
            return Err(CommandError::InvalidExpireTime(command));
        }
        self.any_deadline(command, arguments, index, context)
    }

    /// Reads the deadline from the argument at `index`; it may be in the past.
    pub(super) fn any_deadline(
        self,
        command: &'static str,
        arguments: Arguments<'_>,
        index: usize,
        context: &Context,
    ) -> Result<Deadline, CommandError> {
        let invalid = CommandError::InvalidExpireTime(command);
        let given = integer(arguments, index)?;
        let ms = match self {
            ExpiryOption::Seconds | ExpiryOption::AtSecond => given.checked_mul(1000),
            ExpiryOption::Milliseconds | ExpiryOption::AtMillisecond => Some(given),
        };
        match (self, ms) {
            (_, None) => Err(invalid),
            (ExpiryOption::AtSecond | ExpiryOption::AtMillisecond, Some(ms)) => Ok(Deadline::At(ms)),
            // The sum is computed where the command takes effect; here it only must not overflow.
            (_, Some(ms)) if ms.checked_add_unsigned(context.now_ms).is_none() => Err(invalid),
            (_, Some(ms)) => Ok(Deadline::In(ms)),
        }
    }
}

parsers! { (arguments, scratch, context)
    setex => set_with_expiry("setex", ExpiryOption::Seconds, arguments, context);
    psetex => set_with_expiry("psetex", ExpiryOption::Milliseconds, arguments, context);
}

fn set_with_expiry<'a>(
    name: &'static str,
    option: ExpiryOption,
    arguments: Arguments<'a>,
    context: &Context,
) -> Parsed<'a> {
    let (key, value) = (key(arguments, 1)?, value(arguments, 3, context)?);
    let expiry = Expiry::Set(option.deadline(name, arguments, 2, context)?);
    Ok(Command::Set { key, value, expiry, condition: Condition::Always, answer: SetAnswer::Status })
}

pub(super) fn getex<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, context: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let (mut persist, mut expiry) = (false, None);
    let mut index = 2;
    while let Some(option) = arguments.get(index) {
        if is(option, "PERSIST") && expiry.is_none() {
            persist = true;
        } else if let Some(option) = ExpiryOption::named(option)
            && !persist
            && option.may_follow(expiry)
            && index + 1 < arguments.len()
        {
            expiry = Some((option, index + 1));
            index += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        index += 1;
    }
    match expiry {
        Some((option, index)) => {
            let looks = Looks::at(1, Kinds::STRING).or(Answer::Null);
            let deadline = looks.then(option.deadline("getex", arguments, index, context))?;
            Ok(Command::GetExpire { key, expiry: Expiry::Set(deadline) })
        }
        None if persist => Ok(Command::GetExpire { key, expiry: Expiry::Clear }),
        // Without options it changes nothing, so it need not be ordered among the writes.
        None => Ok(Command::Get { key }),
    }
}

parsers! { (arguments, scratch, context)
    expire => set_deadline("expire", ExpiryOption::Seconds, arguments, context);
    pexpire => set_deadline("pexpire", ExpiryOption::Milliseconds, arguments, context);
    expireat => set_deadline("expireat", ExpiryOption::AtSecond, arguments, context);
    pexpireat => set_deadline("pexpireat", ExpiryOption::AtMillisecond, arguments, context);
}

fn set_deadline<'a>(
    name: &'static str,
    option: ExpiryOption,
    arguments: Arguments<'a>,
    context: &Context,
) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    let condition = expire_condition(arguments)?;
    Ok(Command::Expire { key, deadline: option.any_deadline(name, arguments, 2, context)?, condition })
}

fn expire_condition(arguments: Arguments<'_>) -> Result<ExpireCondition, CommandError> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in arguments.iter().skip(3) {
        let conditions = [("NX", &mut nx), ("XX", &mut xx), ("GT", &mut gt), ("LT", &mut lt)];
        match conditions.into_iter().find(|(name, _)| is(option, name)) {
            Some((_, given)) => *given = true,
            None => return Err(CommandError::UnsupportedOption(printable(option))),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(CommandError::ExpireNxWithOther);
    }
    Ok(match (xx, gt, lt) {
        (_, true, true) => return Err(CommandError::ExpireGtWithLt),
        (true, true, _) => ExpireCondition::IfSomeAndLater,
        (true, _, true) => ExpireCondition::IfSomeAndEarlier,
        (true, ..) => ExpireCondition::IfSome,
        (_, true, _) => ExpireCondition::IfLater,
        (_, _, true) => ExpireCondition::IfEarlier,
        _ if nx => ExpireCondition::IfNone,
        _ => ExpireCondition::Always,
    })
}

parsers! { (arguments, scratch, context)
    ttl => Ok(Command::TimeToLive { key: key(arguments, 1)?, unit: ExpiryUnit::SecondsLeft });
    pttl => Ok(Command::TimeToLive { key: key(arguments, 1)?, unit: ExpiryUnit::MillisecondsLeft });
    expiretime => Ok(Command::TimeToLive { key: key(arguments, 1)?, unit: ExpiryUnit::UnixSeconds });
    pexpiretime => Ok(Command::TimeToLive { key: key(arguments, 1)?, unit: ExpiryUnit::UnixMilliseconds });
    persist => Ok(Command::Persist { key: key(arguments, 1)? });
}
