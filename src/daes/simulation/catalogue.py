"""The fields of the simulated ad stream: 20 categorical and 10 numerical ones, as in the paper's industrial data set.

Roots (drawn independently of everything else) are device, country, placement, category and format. Numerical laws
depend on these only, which keeps their marginal laws in closed form.

| numerical | law given its context | context | what it shows |
| --- | --- | --- | --- |
| price | lognormal, in cents | category | heavy tail, strong context |
| bid | Lomax (Pareto II), tail 2.2 | category | power law |
| discount | logit-normal in whole percent, zero-inflated | category | zero inflation, ties |
| item_age_hours | Weibull | format | many near zero |
| impressions_7d | Lomax, tail 1.2, counted, zero-inflated | category | no variance, ties |
| clicks_7d | Lomax, tail 1.8, counted, zero-inflated | device | mostly zero, few values |
| ctr_7d | logit-normal | placement | missing exactly where impressions_7d = 0 |
| dwell_seconds | lognormal | device | missing at random |
| distance_km | Weibull | country | missing, more often in some countries |
| user_age | logit-normal on 12 … 99, in whole years | country | integers with ties, missing at random |

Values are drawn for each row: two rows of the same creative may have different prices.
"""

import numpy as np

from daes.simulation.draws import Array
from daes.simulation.fields import CalendarField, CategoricalField, ChoiceField, IdField, TraitField
from daes.simulation.laws import EXP, NORMAL, WEIBULL, NumericalSpec, between, lomax

COUNTRIES = ("US", "IN", "BR", "DE", "JP", "GB", "FR", "MX", "ID", "IT", "KR", "PL")
CATEGORIES = (
    *("fashion", "electronics", "grocery", "beauty", "home", "sports", "toys", "books"),
    *("travel", "games", "finance", "cars"),
)
DEVICES = ("mobile", "desktop", "tablet", "tv")
SYSTEMS = ("android", "ios", "windows", "macos", "linux", "smart-tv")
SYSTEM_WEIGHTS = np.array(
    [
        [0.62, 0.38, 0.00, 0.00, 0.00, 0.00],
        [0.00, 0.00, 0.70, 0.24, 0.06, 0.00],
        [0.35, 0.60, 0.05, 0.00, 0.00, 0.00],
        [0.25, 0.05, 0.00, 0.00, 0.00, 0.70],
    ]
)
BROWSERS = ("chrome", "safari", "firefox", "edge", "samsung", None)
BROWSER_WEIGHTS = np.array(
    [
        [0.68, 0.00, 0.05, 0.02, 0.20, 0.05],
        [0.20, 0.75, 0.00, 0.00, 0.00, 0.05],
        [0.62, 0.00, 0.10, 0.25, 0.00, 0.03],
        [0.45, 0.45, 0.07, 0.00, 0.00, 0.03],
        [0.45, 0.00, 0.50, 0.00, 0.00, 0.05],
        [0.25, 0.00, 0.00, 0.00, 0.15, 0.60],
    ]
)
CITIES_PER_COUNTRY = 15
ADVERTISERS_PER_CATEGORY = 40
CAMPAIGNS_PER_ADVERTISER = 4
CREATIVES_PER_CAMPAIGN = 6
SITES_PER_PLACEMENT = 300
LIFETIMES = (12.0, 3.0, 60.0)
"""Of campaigns, creatives and users, in days, at churn 1."""
SEGMENTS = tuple(f"s{number:02d}" for number in range(30))
PLACEMENTS = ("feed", "story", "search", "banner", "video", "reward")
CLOCK_HOURS = tuple(str(hour) for hour in range(24))
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


NUMERICAL = (
    NumericalSpec("price", "ad", "category", NORMAL, EXP, (3.4, 1.8), (0.55, 0.3), steps_per_unit=100),
    NumericalSpec("bid", "ad", "category", lomax(2.2), EXP, (-0.2, 1.2), (0.8, 0.2)),
    NumericalSpec(
        "discount",
        "ad",
        "category",
        NORMAL,
        between(0, 100),
        (-1.2, 0.9),
        (0.6, 0.3),
        zero=(0.3, 0.8),
        steps_per_unit=1,
    ),
    NumericalSpec("item_age_hours", "ad", "format", WEIBULL, EXP, (4.0, 1.3), (1.2, 0.2)),
    NumericalSpec(
        "impressions_7d", "ad", "category", lomax(1.2), EXP, (6.0, 1.5), (1.0, 0.2), zero=(0.02, 0.2), steps_per_unit=1
    ),
    NumericalSpec(
        "clicks_7d", "request", "device", lomax(1.8), EXP, (1.5, 1.0), (1.0, 0.2), zero=(0.4, 0.8), steps_per_unit=1
    ),
    NumericalSpec(
        "ctr_7d", "ad", "placement", NORMAL, between(0, 1), (-3.0, 1.2), (0.6, 0.2), missing_where_zero="impressions_7d"
    ),
    NumericalSpec("dwell_seconds", "request", "device", NORMAL, EXP, (2.5, 1.0), (1.0, 0.3), missing=(0.05, 0.05)),
    NumericalSpec("distance_km", "ad", "country", WEIBULL, EXP, (2.5, 1.3), (1.0, 0.2), missing=(0.05, 0.5)),
    NumericalSpec(
        "user_age",
        "request",
        "country",
        NORMAL,
        between(12, 99),
        location=(-0.9, 0.5),
        scale=(0.6, 0.2),
        missing=(0.15, 0.15),
        steps_per_unit=1,
    ),
)


def zipf_weights(count: int, exponent: float) -> Array:
    """1, 2^−s, 3^−s, …"""
    return np.arange(1, count + 1, dtype=np.float64) ** -exponent


def categorical_fields(users: int, daily: bool, churn: float) -> tuple[CategoricalField, ...]:
    """The 20 categorical fields, each after those it depends on.

    Args:
        users: number of user slots.
        daily: whether the mix of connections follows the hour.
        churn: speed at which ids are replaced.
    """
    country = zipf_weights(len(COUNTRIES), 0.8)
    per_country = np.maximum(np.round(users * country / country.sum()), 1).astype(np.int64)
    cities = tuple(f"{name}-{number:02d}" for name in COUNTRIES for number in range(1, CITIES_PER_COUNTRY + 1))
    sites = np.full(len(PLACEMENTS), SITES_PER_PLACEMENT)
    advertisers = np.full(len(CATEGORIES), ADVERTISERS_PER_CATEGORY)
    campaigns = np.full(advertisers.sum(), CAMPAIGNS_PER_ADVERTISER)
    creatives = np.full(campaigns.sum(), CREATIVES_PER_CAMPAIGN)
    campaign_days, creative_days, user_days = (days / churn if churn else np.inf for days in LIFETIMES)
    return (
        ChoiceField("device", "request", DEVICES, np.array([0.55, 0.25, 0.13, 0.07])),
        ChoiceField("os", "request", SYSTEMS, SYSTEM_WEIGHTS, parent="device"),
        ChoiceField("browser", "request", BROWSERS, BROWSER_WEIGHTS, parent="os"),
        CalendarField("hour", "request", CLOCK_HOURS, period=1.0),
        CalendarField("weekday", "request", WEEKDAYS, period=7.0),
        ChoiceField("connection", "request", ("wifi", "5g", "4g", "3g"), _connection_weights(daily), parent="hour"),
        ChoiceField("country", "request", COUNTRIES, country),
        ChoiceField("city", "request", (*cities, None), _city_weights(), parent="country"),
        IdField("user", "request", "country", per_country, exponent=0.7, prefix="u", salt=1, lifetime=user_days),
        TraitField("gender", "request", "user", ("female", "male", None), np.array([0.45, 0.43, 0.12]), salt=2),
        TraitField("interest", "request", "user", CATEGORIES, zipf_weights(len(CATEGORIES), 0.4), salt=3),
        TraitField("segment", "request", "user", SEGMENTS, zipf_weights(len(SEGMENTS), 0.5), salt=4),
        ChoiceField("placement", "request", PLACEMENTS, zipf_weights(len(PLACEMENTS), 0.6)),
        ChoiceField("position", "request", ("1", "2", "3", "4", "5"), zipf_weights(5, 0.5)),
        IdField("site", "request", "placement", sites, exponent=1.1, prefix="site", salt=5),
        ChoiceField("category", "ad", CATEGORIES, zipf_weights(len(CATEGORIES), 0.5)),
        IdField("advertiser", "ad", "category", advertisers, exponent=0.9, prefix="adv", salt=6),
        IdField("campaign", "ad", "advertiser", campaigns, exponent=0.8, prefix="cmp", salt=7, lifetime=campaign_days),
        IdField(
            "creative",
            "ad",
            "campaign",
            creatives,
            exponent=0.8,
            prefix="cr",
            salt=7,  # the campaign's: no creative outlives its campaign
            lifetime=creative_days,
            parent_lifetime=campaign_days,
        ),
        ChoiceField("format", "ad", ("image", "carousel", "video", "text", "playable"), zipf_weights(5, 0.7)),
    )


def _connection_weights(daily: bool) -> Array:
    """By hour: at home in the evening and at night, on the move during the day."""
    hour = (np.arange(24) + 0.5) / 24
    wifi = 0.55 + (0.25 if daily else 0.0) * np.cos(2 * np.pi * (hour - 0.95))
    rest = np.array([0.45, 0.45, 0.10])
    return np.column_stack([wifi, (1 - wifi)[:, None] * rest])


def _city_weights() -> Array:
    """Each country has its own cities; the city is missing in one row of thirty."""
    own = zipf_weights(CITIES_PER_COUNTRY, 0.9)
    table = np.kron(np.eye(len(COUNTRIES)), own / own.sum() * (29 / 30))
    return np.column_stack([table, np.full(len(COUNTRIES), 1 / 30)])
