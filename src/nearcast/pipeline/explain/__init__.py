"""Why a publication reached a subscription, or did not: judged by the rows of its trace."""
