from .comparison import effect_over_time as effect_over_time
from .comparison import plan as plan
from .comparison import plan_labels as plan_labels
from .config import Options as Options
from .conventions import compare_conventions as compare_conventions
from .engines import laptop_session as laptop_session
from .job import run as run
from .metrics import Convention as Convention
from .metrics import metric as metric
from .metrics import parse as parse
from .pipeline import Result as Result
from .pipeline import compare as compare
from .pipeline import evaluate as evaluate
from .pipeline import read as read
from .studies import changed as changed
from .studies import coec_judgements as coec_judgements
from .studies import exposure as exposure
from .studies import interleaving as interleaving
from .studies import off_policy as off_policy
from .studies import propensities as propensities
from .studies import unjudged as unjudged
from .udfs import ap_at as ap_at
from .udfs import metric_udf as metric_udf
from .udfs import ndcg_at as ndcg_at
from .udfs import register_udfs as register_udfs

__version__: str
