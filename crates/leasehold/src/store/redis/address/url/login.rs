//! Reads user, password and database of a URL. Two different values for one of them are an error.

use redis::RedisConnectionInfo;

use super::percent::text;

/// The login and the database.
#[derive(Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u32>,
}

impl Login {
    pub(super) fn take_user(&mut self, who: &str) -> Result<(), String> {
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let given = |part: &str| match part {
            "" => Ok(None),
            part => text(part).map(Some),
        };
        (self.user, self.password) = (given(user)?, given(password)?);
        Ok(())
    }

    pub(super) fn take_path(&mut self, path: &str) -> Result<(), String> {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.strip_suffix('/').unwrap_or(path) {
            "" => Ok(()),
            number => self.take_database(number),
        }
    }

    pub(super) fn take_database(&mut self, text: &str) -> Result<(), String> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        let number = number.ok_or("names a database that is not a number")?;
        once(&mut self.database, number, "databases")
    }

    pub(super) fn settings(self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default();
        if let Some(user) = self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = self.password {
            settings = settings.set_password(password);
        }
        settings.set_db(self.database.unwrap_or_default().into())
    }
}

/// Stores a value. The same value may be given twice, two different ones are an error.
pub(super) fn once<T: PartialEq>(
    place: &mut Option<T>,
    value: T,
    what: &str,
) -> Result<(), String> {
    match place {
        Some(other) if *other != value => Err(format!("names two {what}")),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}
