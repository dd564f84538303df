def trimmed(parcel):
    return {name: value for name, value in parcel.items() if value is not None}
