"""kctl profile: profiles of clusters, their secrets, and the file that holds them."""
