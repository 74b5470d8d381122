//! The state of subjects in the table `limits` of a schema.

use chrono::{DateTime, Utc};
use database::{Database, Error};
use sqlx::{AssertSqlSafe, PgExecutor};

use crate::gcra::delta;
use crate::{Network, Rate};

/// Small, so that the locks of a purge are short.
const PURGE_BATCH: i32 = 1000;

/// The table of one schema.
pub(crate) struct PostgresStore {
    pub(crate) schema: &'static str,
    pub(crate) database: Database,
}

impl PostgresStore {
    /// Counts a request. Returns the network that rejects it, with its theoretical arrival time.
    pub(crate) async fn count<'n>(
        &self,
        executor: impl PgExecutor<'_>,
        limit: &'static str,
        rate: &Rate,
        networks: &'n [Network],
        now: DateTime<Utc>,
    ) -> Result<Option<(&'n Network, DateTime<Utc>)>, Error> {
        let count = AssertSqlSafe(count_statement(self.schema, networks.len()));
        let mut query = sqlx::query_as(count).bind(limit).bind(now).bind(now + delta(rate.max_lead()));
        for network in networks {
            let latest = network.rule(rate).latest_arrival(now);
            query = query.bind(&network.name).bind(delta(network.interval(rate))).bind(latest);
        }
        let rejection: Option<(i32, DateTime<Utc>)> = query.fetch_optional(executor).await?;
        Ok(rejection
            .and_then(|(index, arrival)| Some((networks.get(usize::try_from(index).ok()?)?, arrival))))
    }

    /// Reverts one [`Self::count`].
    pub(crate) async fn refund(
        &self,
        executor: impl PgExecutor<'_>,
        limit: &'static str,
        rate: &Rate,
        networks: &[Network],
    ) -> Result<(), Error> {
        let refund = format!(
            "-- limit.refund
            update {}.limits
            set theoretical_arrival_at = theoretical_arrival_at - refunded.interval
            from unnest($2::text[], $3::interval[]) as refunded (subject, interval)
            where limit_name = $1 and limits.subject = refunded.subject",
            self.schema
        );
        let of_network = |network: &Network| (network.name.clone(), delta(network.interval(rate)));
        let (subjects, intervals): (Vec<_>, Vec<_>) = networks.iter().map(of_network).unzip();
        let refund = sqlx::query(AssertSqlSafe(refund)).bind(limit).bind(subjects).bind(intervals);
        refund.execute(executor).await?;
        Ok(())
    }

    /// Deletes expired rows: a theoretical arrival time in the past restricts no request.
    pub(crate) async fn delete_before(&self, now: DateTime<Utc>) -> Result<(), Error> {
        // Replicas can delete at the same time; each skips the rows that another one has locked.
        let delete = format!(
            "-- limit.delete_before
            delete from {schema}.limits where ctid = any(array(
                select ctid
                from {schema}.limits
                where theoretical_arrival_at <= $1
                limit $2
                for update skip locked
            ))",
            schema = self.schema
        );
        loop {
            let delete = sqlx::query(AssertSqlSafe(delete.clone())).bind(now).bind(PURGE_BATCH);
            let deleted = delete.execute(self.database.pool()).await?.rows_affected();
            if deleted < u64::from(PURGE_BATCH.unsigned_abs()) {
                return Ok(());
            }
        }
    }
}

/// The statement that counts a request in nested networks, narrowest first. A network counts the requests that the narrower
/// ones allow, so that a source above its limit does not use up the limit of its neighbours. The parameters of a network are its
/// name, its interval and the latest time with which it allows a request. Returns the network that rejects the request. A rejection
/// rewrites the existing values, at most those of [`Rate::max_lead`], so that one statement can return the decision. All statements lock
/// the rows in this order.
fn count_statement(schema: &str, networks: usize) -> String {
    let counted = (0..networks).map(|index| {
        let [subject, interval, latest] = [4, 5, 6].map(|parameter| 3 * index + parameter);
        let allowed =
            if index == 0 { String::new() } else { format!("from network_{} where allowed", index - 1) };
        format!(
            "network_{index} as (
                insert into {schema}.limits as stored (limit_name, subject, theoretical_arrival_at, allowed)
                select $1, ${subject}, $2 + ${interval}, true {allowed}
                on conflict (limit_name, subject) do update
                set allowed = stored.theoretical_arrival_at <= ${latest},
                    theoretical_arrival_at = case
                        when stored.theoretical_arrival_at <= ${latest}
                            then greatest(stored.theoretical_arrival_at, $2) + ${interval}
                        else least(stored.theoretical_arrival_at, $3)
                    end
                returning {index} as index, allowed, theoretical_arrival_at
            )"
        )
    });
    let rejections = (0..networks)
        .map(|index| format!("select index, theoretical_arrival_at from network_{index} where not allowed"));
    let (counted, rejections): (Vec<_>, Vec<_>) = (counted.collect(), rejections.collect());
    format!("-- limit.count\nwith {} {}", counted.join(", "), rejections.join(" union all "))
}
