{delete_v3}
;
