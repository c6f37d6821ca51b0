-- All flights so far, and from them the flights, cancellations and minutes of delay of each airline and day.
CREATE STREAMING TABLE flight_log AS
SELECT scheduled, carrier, dep_delay FROM STREAM(flights);

CREATE MATERIALIZED VIEW delays COMMENT 'Delays of each airline and day' AS
SELECT
  CAST(scheduled AS DATE) AS day,
  carrier,
  airline,
  count(*) AS flights,
  count_if(dep_delay IS NULL) AS cancelled,
  count(dep_delay) AS departed,
  coalesce(sum(dep_delay), 0) AS delay_minutes
FROM flight_log JOIN airlines USING (carrier)
GROUP BY day, carrier, airline;
